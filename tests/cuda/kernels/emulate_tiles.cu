/* What lies where in the slices that the wgmma kernels multiply, on the CPU, without a card: boxes as the copy engine writes them, slot
 * by slot, and what a product takes from them at every tap.
 *
 * A slot holds the coordinates of its position, or nothing where the engine writes zeros or no copy reaches.  Every position of dz, or of
 * the output, must meet at every tap the position of x that the convolution has there, or nothing; a slot of dz that is no position must
 * hold nothing; all positions must be there, once. */
#include <cstdio>
#include <cstring>
#include <vector>

#include "cuda/conv/conv3x3x3_plan.cuh"
#include "cuda/conv/conv3x3x3_wgrad_tiles.cuh"
#include "cuda/conv/conv_strided_plan.cuh"

namespace
{

struct position {
    int cell, y, x; /* cell < 0: zeros */
};

const position nothing = {-1, 0, 0};
constexpr int HOPPER = 232448; /* bytes of shared memory of a block */
int failures;

void fail(const char *what, const char *of, const flim_conv_problem &s)
{
    if (failures++ < 10)
        printf("%s, %s: n %d C %d K %d %dx%d stride %d: FAILED\n", of, what, (int)s.n, s.c, s.k, s.in[1], s.in[2],
               s.stride[2]);
}

flim_conv_problem problem_of(int n, int c, int k, int h, int w, int stride, bool prologue)
{
    flim_conv_problem s = {};
    s.op = FLIM_CONV_WEIGHT;
    s.type = FLIM_STORAGE_FP16;
    s.n = n, s.c = s.in_channels = c, s.k = s.out_channels = k;
    s.in[0] = s.out[0] = 3, s.in[1] = h, s.in[2] = w;
    s.out[1] = (h + stride - 1) / stride, s.out[2] = (w + stride - 1) / stride;
    for (int d = 0; d < 3; d++)
        s.kernel[d] = 3, s.pad[d] = 1, s.stride[d] = d ? stride : 1;
    s.x_form = prologue ? FLIM_INPUT_NORM_ACT_ON_LOAD : FLIM_INPUT_PLAIN;
    return s;
}

/* A box of `cells` x rows x columns positions, `every` apart, from a corner on, into slots from `to` on. */
void write_box(std::vector<position> &slots, int to, int cells, int rows, int columns, int every, int cell, int y, int x,
               int n, int h, int w, bool &inside)
{
    for (int i = 0; i < cells * rows * columns; i++) {
        const position p = {cell + i / columns / rows, y + i / columns % rows * every, x + i % columns * every};
        const bool there = p.cell >= 0 && p.cell < n && p.y >= 0 && p.y < h && p.x >= 0 && p.x < w;
        inside = inside && to + i < (int)slots.size();
        if (to + i < (int)slots.size())
            slots[(size_t)(to + i)] = there ? p : nothing;
    }
}

template <int BLOCK> void check_weight_gradient(const flim_conv_problem &s)
{
    using namespace flim_wgrad_tiles;
    tiling p;
    const int stride = s.stride[2], ho = s.out[1], wo = s.out[2], taps = BLOCK == 64 ? 3 : SPACE;
    if (!find_tiling<BLOCK>(&s, HOPPER, &p)) {
        fail("no tiling", "weight gradient", s);
        return;
    }
    bool inside =
             p.shared_bytes <= HOPPER && p.z_ring <= MOST_RING && p.x_ring <= MOST_RING && p.x_ring >= 2 && p.z_ring >= 4,
         right = true;
    for (int set = 0; BLOCK == 32 && set < form<32>::SETS; set++)
        right = right && tap_slot<32>(p, stride, tap_of(set, 0)) <= tap_slot<32>(p, stride, tap_of(set, 1));
    std::vector<int> seen((size_t)(s.n * ho * wo * taps), 0);
    for (int cell = 0; cell < s.n; cell += p.cells)
        for (int tile = 0; tile < p.tiles; tile++)
            for (int part = 0; part < form<BLOCK>::PARTS; part++) {
                const int row = tile * p.rows;
                std::vector<position> x((size_t)p.x_slots, nothing), z((size_t)p.z_slots, nothing);
                write_box(z, 0, p.cells, p.z_rows, p.pitch, 1, cell, row, 0, (int)s.n, ho, wo, inside);
                for (int i = 0; i < p.row_planes * p.column_planes; i++)
                    write_box(x, i * p.plane, p.cells, p.x_rows, p.pitch, stride, cell,
                              stride * row + (BLOCK == 64 ? part : i / p.column_planes) - 1, i % p.column_planes - 1,
                              (int)s.n, s.in[1], s.in[2], inside);
                for (int at = 0; at < 16 * p.inner; at++)
                    for (int i = 0; i < taps; i++) {
                        const int tap = BLOCK == 64 ? 3 * part + i : i,
                                  from = tap_slot<BLOCK>(p, stride, BLOCK == 64 ? i : tap) + at;
                        inside = inside && at < p.z_slots && from < p.x_slots;
                        if (!inside || z[(size_t)at].cell < 0)
                            continue;
                        const position here = z[(size_t)at], got = x[(size_t)from];
                        const position want = {here.cell, stride * here.y + tap / 3 - 1, stride * here.x + tap % 3 - 1};
                        const bool exists = want.y >= 0 && want.y < s.in[1] && want.x >= 0 && want.x < s.in[2];
                        right =
                            right && (exists ? got.cell == want.cell && got.y == want.y && got.x == want.x : got.cell < 0);
                        seen[(size_t)(((here.cell * ho + here.y) * wo + here.x) * taps + i)]++;
                    }
            }
    for (int count : seen)
        right = right && count == form<BLOCK>::PARTS;
    if (!inside)
        fail("beyond its slices", "weight gradient", s);
    else if (!right)
        fail("another position", "weight gradient", s);
}

template <int CI, int CO> void check_convolution(const flim_conv_problem &s)
{
    using namespace flim_conv3x3x3;
    using F = form<CI, CO>;
    plan p;
    if (!find_plan<CI, CO>(&s, HOPPER, &p)) {
        if (CI < 64 || s.in[2] <= 21) /* wider rows of 64 channels are other kernels' */
            fail("no plan", "convolution", s);
        return;
    }
    bool inside = p.shared_bytes <= HOPPER && p.ring >= 2 && p.ring <= MOST_RING, right = p.pitch * F::ROW % 128 == 0;
    std::vector<int> seen((size_t)(s.n * s.in[1] * s.in[2]), 0);
    for (int unit = 0; unit < p.units; unit++) {
        std::vector<position> x((size_t)p.slots, nothing);
        for (int row = 0; row < p.rows + 2; row++) {
            const place from = place_of(p, unit * p.rows - 1 + row);
            write_box(x, row * p.pitch, 1, 1, p.pitch, 1, from.cell, from.y, -1, (int)s.n, s.in[1], s.in[2], inside);
        }
        for (int slot = 0; slot < F::SLOTS; slot++) {
            const place to = place_of(p, unit * p.rows + slot / p.pitch);
            const int column = slot % p.pitch;
            const bool there = slot / p.pitch < p.rows && column < s.in[2] && to.y >= 0 && to.cell < p.n;
            for (int tap = 0; tap < 9; tap++) {
                const int from = slot + tap / 3 * p.pitch + tap % 3;
                inside = inside && from < p.slots;
                if (!inside || !there)
                    continue;
                const position got = x[(size_t)from], want = {to.cell, to.y + tap / 3 - 1, column + tap % 3 - 1};
                const bool exists = want.y >= 0 && want.y < s.in[1] && want.x >= 0 && want.x < s.in[2];
                right = right && (exists ? got.cell == want.cell && got.y == want.y && got.x == want.x : got.cell < 0);
            }
            if (there)
                seen[(size_t)((to.cell * s.in[1] + to.y) * s.in[2] + column)]++;
        }
    }
    for (int count : seen)
        right = right && count == 1;
    if (!inside)
        fail("beyond its slice", "convolution", s);
    else if (!right)
        fail("another position", "convolution", s);
}

/* Every pixel of dx meets, over all products, each tap that reaches it once, with the dz of that tap or nothing. */
void check_strided(const flim_conv_problem &s)
{
    using namespace flim_conv_strided;
    plan p;
    const int h = s.in[1], w = s.in[2], ho = s.out[1], wo = s.out[2];
    if (!find_plan(&s, HOPPER, &p)) {
        if (w <= 172) /* wider rows are cuDNN's */
            fail("no plan", "data gradient of stride 2", s);
        return;
    }
    bool inside = p.shared_bytes <= HOPPER && p.ring >= LEAST_RING && p.ring <= MOST_RING, right = true;
    std::vector<int> seen((size_t)(s.n * h * w * 9), 0);
    for (int unit = 0; unit < p.units; unit++) {
        std::vector<position> z((size_t)p.slots, nothing);
        for (int row = 0; row <= p.rows; row++) {
            const place from = place_of(p, unit * p.rows + row);
            write_box(z, row * p.pitch, 1, 1, p.pitch, 1, from.cell, from.y, 0, (int)s.n, ho, wo, inside);
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            const place to = place_of(p, unit * p.rows + slot / p.pitch);
            const int column = slot % p.pitch;
            const bool there = slot / p.pitch < p.rows && column < wo && to.y < ho && to.cell < p.n;
            for (int i = 0; i < PRODUCTS; i++) {
                const column_group begins = place_of_product(i);
                const int from = slot + begins.y * p.pitch + begins.x;
                inside = inside && from < p.slots;
                for (int k = 0; k < product_of(i).count && inside && there; k++) {
                    const column_group g = group_of(product_of(i).first + k);
                    if (g.of < 0)
                        continue;
                    const int y = 2 * to.y + class_y(g.of), x = 2 * column + class_x(g.of), tap = tap_of(g);
                    if (y >= h || x >= w)
                        continue;
                    const position got = z[(size_t)from], want = {to.cell, (y + 1 - tap / 3) / 2, (x + 1 - tap % 3) / 2};
                    const bool exists = want.y < ho && want.x < wo;
                    right = right && g.of == class_of(product_of(i).sums, k) && g.y == begins.y && g.x == begins.x &&
                            (y + 1 - tap / 3) % 2 == 0 && (x + 1 - tap % 3) % 2 == 0 &&
                            (exists ? got.cell == want.cell && got.y == want.y && got.x == want.x : got.cell < 0);
                    seen[(size_t)(((to.cell * h + y) * w + x) * 9 + tap)]++;
                }
            }
        }
    }
    for (size_t i = 0; i < seen.size(); i++) {
        const int tap = (int)(i % 9), x = (int)(i / 9) % w, y = (int)(i / 9) / w % h;
        right = right && seen[i] == ((y + 1 - tap / 3) % 2 == 0 && (x + 1 - tap % 3) % 2 == 0);
    }
    if (!inside)
        fail("beyond its slice", "data gradient of stride 2", s);
    else if (!right)
        fail("another position", "data gradient of stride 2", s);
}

} // namespace

int main()
{
    static const int sides[] = {1, 2, 3, 5, 6, 7, 10, 11, 12, 16, 20, 21, 22, 33, 41, 64, 90};
    int checked = 0;
    for (int h : sides)
        for (int w : sides)
            for (int n : {1, 2, 5, 9}) {
                if (n > 2 && h * w > 1500)
                    continue;
                for (int stride = 1; stride <= 2; stride++)
                    for (int prologue = 0; prologue < 2; prologue++) {
                        check_weight_gradient<32>(problem_of(n, 32, 64, h, w, stride, prologue == 1));
                        check_weight_gradient<64>(problem_of(n, 64, 128, h, w, stride, prologue == 1));
                        checked += 2;
                    }
                check_convolution<16, 16>(problem_of(n, 16, 16, h, w, 1, false));
                check_convolution<32, 32>(problem_of(n, 32, 32, h, w, 1, false));
                check_convolution<64, 32>(problem_of(n, 64, 64, h, w, 1, false));
                check_strided(problem_of(n, 32, 64, h, w, 2, false));
                checked += 4;
            }
    printf("%d tilings, %d failures\n", checked, failures);
    return failures > 0;
}
