/* The gradient of a unit's output as its readers left it: up to four contributions (flim_grad_inputs), loaded and added as a
 * kernel walks over the pixels.
 *
 * For: epilogue_backward.cuh.  Its kernels are compiled for the shapes of inputs that the network has
 *      (grad_inputs_shape, FLIM_BY_GRAD_INPUTS) and for ANY.
 */
#ifndef FLIM_CUDA_GRAD_INPUTS_CUH
#define FLIM_CUDA_GRAD_INPUTS_CUH

#include "cuda/kernels/epilogue.cuh"

/* Shapes of the inputs that have kernels of their own; ANY asks at each pixel what the inputs are. */
enum { DENSE, TWO_DENSE, DENSE_STRIDED, BROADCAST, ANY };

__device__ __forceinline__ float grad_input_multiplier(const flim_grad_input &s)
{
    return (1.0f / (s.scale_a ? *s.scale_a : 1.0f)) * (1.0f / (s.scale_b ? *s.scale_b : 1.0f)); /* powers of two: exact */
}

/* The inputs as kernels take them: with what divides pixel numbers. */
struct grad_inputs_view : flim_grad_inputs {
    divisor by_hw, by_w, by_stride[FLIM_MAX_GRAD_INPUTS][3];
};

inline grad_inputs_view view_of(const flim_grad_inputs &dy)
{
    grad_inputs_view v = {};
    static_cast<flim_grad_inputs &>(v) = dy;
    v.by_hw = make_divisor(dy.h * dy.w > 0 ? dy.h * dy.w : 1);
    v.by_w = make_divisor(dy.w > 0 ? dy.w : 1);
    for (int k = 0; k < FLIM_MAX_GRAD_INPUTS; k++) {
        for (int d = 0; d < 3; d++) {
            v.by_stride[k][d] = make_divisor(dy.item[k].stride[d] > 0 ? dy.item[k].stride[d] : 1);
        }
    }
    return v;
}

/* The pixel of its cell at which strided input k contributes to pixel q of y; -1 if it does not. */
__device__ __forceinline__ int strided_at(const grad_inputs_view &dy, int k, unsigned q)
{
    const flim_grad_input &s = dy.item[k];
    const int t = divide(dy.by_hw, (int)q), r = (int)q - t * (int)dy.by_hw.number, y = divide(dy.by_w, r), x = r - y * dy.w;
    const int st = divide(dy.by_stride[k][0], t), sy = divide(dy.by_stride[k][1], y), sx = divide(dy.by_stride[k][2], x);
    const bool there = st * s.stride[0] == t && sy * s.stride[1] == y && sx * s.stride[2] == x;
    return there ? (st * s.size[1] + sy) * s.size[2] + sx : -1;
}

/* Elements of the cells before `cell` in strided input k. */
__device__ __forceinline__ int64_t strided_cell(const flim_grad_input &s, int64_t cell, int c)
{
    return cell * s.size[0] * s.size[1] * s.size[2] * c;
}

/* How many loads of 8 channels dy takes at a pixel; with ANY they are made where they are added. */
template <int INPUTS> struct grad_loads {
    enum { VECTORS = INPUTS == DENSE ? 1 : INPUTS == TWO_DENSE || INPUTS == DENSE_STRIDED ? 2 : 0 };
};

/* load(0 or 1, address, whether there is something) for each of them at pixel q of y. */
template <typename T, int INPUTS, typename LOAD>
__device__ __forceinline__ void load_gradient(const grad_inputs_view &dy, int64_t cell, int64_t pixels, unsigned q, int c,
                                              int channel, LOAD load)
{
    if (grad_loads<INPUTS>::VECTORS >= 1)
        load(0, (const T *)dy.item[0].data + (cell * pixels + q) * c + channel, true);
    if (INPUTS == TWO_DENSE)
        load(1, (const T *)dy.item[1].data + (cell * pixels + q) * c + channel, true);
    if (INPUTS == DENSE_STRIDED) {
        const int at = strided_at(dy, 1, q);
        load(1, (const T *)dy.item[1].data + strided_cell(dy.item[1], cell, c) + (int64_t)(at < 0 ? 0 : at) * c + channel,
             at >= 0);
    }
}

__device__ __forceinline__ void add_scaled(float8 &sum, const float8 &x, float by)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum.v[i] = fmaf(x.v[i], by, sum.v[i]);
    }
}

/* dy at pixel q of y from those loads: `m` holds the inputs' multipliers, `fixed` what is the same at all pixels. */
template <typename T, int INPUTS>
__device__ __forceinline__ float8 gradient_value(const raw8<T> *loaded, const grad_inputs_view &dy, const float (&m)[2],
                                                 const float8 &fixed, int64_t cell, int64_t pixels, unsigned q, int c,
                                                 int channel)
{
    float8 sum = fixed;
    if (INPUTS == ANY) {
        for (int k = 0; k < dy.n; k++) {
            const flim_grad_input &s = dy.item[k];
            float8 x = {{0, 0, 0, 0, 0, 0, 0, 0}};
            if (s.kind == FLIM_GRAD_INPUT_DENSE) {
                x = load8<T>((const T *)s.data + (cell * pixels + q) * c + channel);
            } else if (s.kind == FLIM_GRAD_INPUT_BROADCAST) {
                x = load8<float>((const float *)s.data + cell * c + channel);
            } else {
                const int at = strided_at(dy, k, q);
                if (at >= 0) {
                    x = load8<T>((const T *)s.data + strided_cell(s, cell, c) + (int64_t)at * c + channel);
                }
            }
            add_scaled(sum, x, grad_input_multiplier(s));
        }
        return sum;
    }
    if (grad_loads<INPUTS>::VECTORS >= 1) {
        add_scaled(sum, unpack<T>(loaded[0]), m[0]);
    }
    if (grad_loads<INPUTS>::VECTORS == 2) {
        add_scaled(sum, unpack<T>(loaded[1]), m[1]);
    }
    return sum;
}

/* Multipliers of the first two inputs, and what of dy that is the same at every pixel. */
template <int INPUTS>
__device__ __forceinline__ float8 begin_grad_inputs(const flim_grad_inputs &dy, int64_t cell, int c, int channel,
                                                    float (&m)[2])
{
    m[0] = INPUTS == ANY ? 0.0f : grad_input_multiplier(dy.item[0]);
    m[1] = INPUTS == TWO_DENSE || INPUTS == DENSE_STRIDED ? grad_input_multiplier(dy.item[1]) : 0.0f;
    if (INPUTS == BROADCAST) {
        float8 x = load8<float>((const float *)dy.item[0].data + cell * c + channel);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x.v[i] *= m[0];
        }
        return x;
    }
    return {{0, 0, 0, 0, 0, 0, 0, 0}};
}

/* The shape of the inputs, for 16-bit types; the strided one goes second. */
inline int grad_inputs_shape(flim_storage type, flim_grad_inputs *dy)
{
    if (dy->n == 2 && dy->item[0].kind == FLIM_GRAD_INPUT_STRIDED && dy->item[1].kind == FLIM_GRAD_INPUT_DENSE) {
        const flim_grad_input first = dy->item[0];
        dy->item[0] = dy->item[1];
        dy->item[1] = first;
    }
    if (type == FLIM_STORAGE_FP32 || dy->n < 1 || dy->n > 2) {
        return ANY;
    }
    if (dy->n == 1) {
        return dy->item[0].kind == FLIM_GRAD_INPUT_DENSE       ? DENSE
               : dy->item[0].kind == FLIM_GRAD_INPUT_BROADCAST ? BROADCAST
                                                               : ANY;
    }
    if (dy->item[0].kind != FLIM_GRAD_INPUT_DENSE) {
        return ANY;
    }
    return dy->item[1].kind == FLIM_GRAD_INPUT_DENSE     ? TWO_DENSE
           : dy->item[1].kind == FLIM_GRAD_INPUT_STRIDED ? DENSE_STRIDED
                                                         : ANY;
}

/* Runs CALL with constants SKIP, POOL, INPUTS: the combinations that the network has are compiled, all others take ANY. */
#define FLIM_WITH(s, p, g, CALL)                                                                                             \
    {                                                                                                                        \
        constexpr int SKIP = s, POOL = p, INPUTS = g;                                                                        \
        CALL;                                                                                                                \
    }
#define FLIM_BY_GRAD_INPUTS(type, skip, pool, shape, CALL16, CALL)                                                           \
    if ((skip) == FLIM_SKIP_NONE && (pool) == 1 && (shape) == DENSE)                                                         \
        FLIM_WITH(FLIM_SKIP_NONE, 1, DENSE, CALL16)                                                                          \
    else if ((skip) == FLIM_SKIP_NONE && (pool) == 1 && (shape) == TWO_DENSE)                                                \
        FLIM_WITH(FLIM_SKIP_NONE, 1, TWO_DENSE, CALL16)                                                                      \
    else if ((skip) == FLIM_SKIP_SIGN_MASK && (pool) == 1 && (shape) == DENSE_STRIDED)                                       \
        FLIM_WITH(FLIM_SKIP_SIGN_MASK, 1, DENSE_STRIDED, CALL16)                                                             \
    else if ((skip) == FLIM_SKIP_NORMALISED && (pool) == 2 && (shape) == DENSE_STRIDED)                                      \
        FLIM_WITH(FLIM_SKIP_NORMALISED, 2, DENSE_STRIDED, CALL16)                                                            \
    else if ((skip) == FLIM_SKIP_NORMALISED && (pool) == 2 && (shape) == BROADCAST)                                          \
        FLIM_WITH(FLIM_SKIP_NORMALISED, 2, BROADCAST, CALL16)                                                                \
    else if ((skip) == FLIM_SKIP_SIGN_MASK)                                                                                  \
        FLIM_WITH(FLIM_SKIP_SIGN_MASK, 1, ANY, FLIM_BY_TYPE(type, CALL))                                                     \
    else {                                                                                                                   \
        constexpr int INPUTS = ANY;                                                                                          \
        FLIM_BY_TYPE(type, FLIM_BY_SHAPE(skip, pool, CALL))                                                                  \
    }
/* The two 16-bit types. */
#define FLIM_BY_SHORT(type, CALL)                                                                                            \
    if ((type) == FLIM_STORAGE_FP16) {                                                                                       \
        using T = __half;                                                                                                    \
        CALL;                                                                                                                \
    } else {                                                                                                                 \
        using T = __nv_bfloat16;                                                                                             \
        CALL;                                                                                                                \
    }

#endif
