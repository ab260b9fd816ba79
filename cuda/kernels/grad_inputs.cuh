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

/* Where a strided input contributes to pixel q of y; -1 if it does not. */
__device__ __forceinline__ int64_t strided_at(const flim_grad_input &s, const flim_grad_inputs &dy, int64_t cell, unsigned q)
{
    const unsigned w = (unsigned)dy.w, hw = (unsigned)dy.h * w, t = q / hw, r = q % hw, y = r / w, x = r % w;
    const unsigned st = (unsigned)s.stride[0], sh = (unsigned)s.stride[1], sw = (unsigned)s.stride[2];
    if (t % st != 0 || y % sh != 0 || x % sw != 0) {
        return -1;
    }
    return ((cell * s.size[0] + t / st) * s.size[1] + y / sh) * s.size[2] + x / sw;
}

/* The raw loads of dy at one pixel, and their sum.  `m` holds the inputs' multipliers, `fixed` what is the same at all pixels. */
template <typename T, int INPUTS> struct gradient {
    raw8<T> one, two;
    bool there;

    __device__ __forceinline__ void load(const flim_grad_inputs &dy, int64_t cell, int64_t pixels, unsigned q, int c,
                                         int channel)
    {
        if (INPUTS == DENSE || INPUTS == TWO_DENSE || INPUTS == DENSE_STRIDED) {
            one = load_raw<T>((const T *)dy.item[0].data + (cell * pixels + q) * c + channel);
        }
        if (INPUTS == TWO_DENSE) {
            two = load_raw<T>((const T *)dy.item[1].data + (cell * pixels + q) * c + channel);
        }
        if (INPUTS == DENSE_STRIDED) {
            const int64_t at = strided_at(dy.item[1], dy, cell, q);
            there = at >= 0;
            if (there) {
                two = load_raw<T>((const T *)dy.item[1].data + at * c + channel);
            }
        }
    }

    __device__ __forceinline__ float8 value(const flim_grad_inputs &dy, const float (&m)[2], const float8 &fixed,
                                            int64_t cell, int64_t pixels, unsigned q, int c, int channel) const
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
                    const int64_t at = strided_at(s, dy, cell, q);
                    if (at >= 0) {
                        x = load8<T>((const T *)s.data + at * c + channel);
                    }
                }
                add(sum, x, grad_input_multiplier(s));
            }
            return sum;
        }
        if (INPUTS != BROADCAST) {
            add(sum, unpack<T>(one), m[0]);
        }
        if (INPUTS == TWO_DENSE || (INPUTS == DENSE_STRIDED && there)) {
            add(sum, unpack<T>(two), m[1]);
        }
        return sum;
    }

    static __device__ __forceinline__ void add(float8 &sum, const float8 &x, float by)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum.v[i] = fmaf(x.v[i], by, sum.v[i]);
        }
    }
};

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
