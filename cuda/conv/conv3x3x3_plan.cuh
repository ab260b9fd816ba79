/* How the 3x3x3 convolution by wgmma is tiled: what lies where in its slices.
 *
 * For: conv3x3x3_wgmma.cu, whose head says what a slice is; tests/cuda/kernels/emulate_tiles.cu, which walks through every slot of them.
 */
#ifndef FLIM_CUDA_CONV3X3X3_PLAN_CUH
#define FLIM_CUDA_CONV3X3X3_PLAN_CUH

#include "cuda/conv/conv3x3x3_kernel.cuh"
#include "cuda/conv/conv_tma.cuh"

namespace flim_conv3x3x3
{

enum {
    GROUP = FLIM_TMA_GROUP,
    GROUPS = FLIM_TMA_GROUPS,
    MOST_RING = 4,
    TURN = 1, /* named barriers TURN + warpgroup: its turn */
    MULTIPLYING = TURN + GROUPS /* named barrier of all that multiply */
};
using ring_barriers = flim_ring_barriers<MOST_RING, true>;

/* What follows from the numbers of input channels, and of output channels that a block does. */
template <int CI, int CO> struct form {
    static constexpr bool MASTER = CI == CO; /* fp32 parameters and a bias; else weights as stored */
    static constexpr int CM = CI > CO ? CI : CO, ROW = 2 * CI /* bytes of a slot */;
    static constexpr int R = CO == 32 ? 2 : 4; /* 64-slot tiles of a warpgroup: 96 sums a lane */
    static constexpr int SLOTS = GROUPS * R * 64;
    static constexpr int HALVES = CI / 16; /* 16s of channels */
    static constexpr int STEP_BYTES = 3 * CO * 16 * 2; /* of B for a tap in y and x and 16 channels */
    static constexpr int WEIGHT_BYTES = 9 * HALVES * STEP_BYTES;
    static constexpr int BLOCK = CO / 2; /* sums a lane at one t */
    static constexpr int CONSTANT_BYTES = (CONSTANTS + 1) * CM * 4;
};

/* How a problem is tiled. */
struct plan {
    int rows; /* of the column of all cells' rows, that a block takes at once */
    int pitch; /* slots of a row */
    int slots; /* of a slice */
    int ring; /* slices */
    int n, column; /* cells, and rows of one in the column: H + 1 */
    int units; /* such pieces of the column */
    bool turns;
    int shared_bytes;
};

/* Cell and row in it of a row of the column, which may be -1; a cell's row -1 is the zeros above it. */
struct place {
    int cell, y;
};

__host__ __device__ __forceinline__ place place_of(const plan &p, int row)
{
    const int from_one = row + p.column; /* of a cell before the first */
    return {from_one / p.column - 1, from_one % p.column - 1};
}

/* False if rows do not fit. */
template <int CI, int CO> bool find_plan(const flim_conv_problem *s, int limit, plan *p)
{
    using F = form<CI, CO>;
    const int together = 128 / F::ROW > 1 ? 128 / F::ROW : 1; /* a row begins at a multiple of 128 bytes */
    *p = {};
    p->n = (int)s->n;
    p->column = s->in[1] + 1;
    p->pitch = (s->in[2] + 1 + together - 1) / together * together;
    p->rows = F::SLOTS / p->pitch;
    if (p->rows < 1 || p->pitch > 256 || (double)s->n * p->column > 2e9)
        return false;
    const int rows_all = p->n * p->column;
    p->rows = p->rows < rows_all ? p->rows : rows_all;
    p->units = (rows_all + p->rows - 1) / p->rows;
    const int reach = F::SLOTS + 2 * p->pitch + 2, staged = (p->rows + 2) * p->pitch, line = FLIM_TMA_LINE / F::ROW;
    p->slots = ((reach > staged ? reach : staged) + line - 1) / line * line;
    const int rest = limit - FLIM_TMA_LINE - F::WEIGHT_BYTES - F::CONSTANT_BYTES - ring_barriers::BYTES;
    p->ring = rest / (p->slots * F::ROW);
    p->ring = p->ring < MOST_RING ? p->ring : MOST_RING;
    p->shared_bytes = limit - rest + p->ring * p->slots * F::ROW;
    return p->ring >= 2 && staged <= flim_slot_share<CI, FLIM_TMA_ACTIVATING>::MOST;
}

inline bool find_plan(const flim_conv_problem *s, int from, int limit, plan *p)
{
    return from == 64   ? find_plan<64, 32>(s, limit, p)
           : from == 32 ? find_plan<32, 32>(s, limit, p)
                        : find_plan<16, 16>(s, limit, p);
}

} // namespace flim_conv3x3x3
#endif
