/* What both backward passes over an epilogue load: z, the skip or its sign mask, and the gradient of y, at the pixels of y.
 *
 * For: epilogue_sums.cu and epilogue_backward.cu.
 */
#ifndef FLIM_CUDA_EPILOGUE_BACKWARD_CUH
#define FLIM_CUDA_EPILOGUE_BACKWARD_CUH

#include "cuda/kernels/grad_inputs.cuh"

/* What is the same at all pixels that a thread walks. */
template <typename T, int SKIP, int INPUTS> struct backward_walk {
    const walk w;
    const int c;
    const unsigned hw;
    const int64_t base; /* of the thread's channels in its cell of z */
    const T *z, *skip;
    const uint8_t *sign_mask;
    affine8 a, sa;
    float m[2];
    float8 fixed, keep;
    float slope;

    __device__ __forceinline__ backward_walk(const flim_epilogue &e, const flim_grad_inputs &dy, const flim_blocks &b)
        : w(b, e.c), c(e.c), hw((unsigned)e.hw), base(w.cell * e.t * e.hw * e.c + w.channel), z((const T *)e.z + base),
          skip((const T *)e.skip_in + base), sign_mask(SKIP == FLIM_SKIP_SIGN_MASK ? e.sign_mask + base / 8 : nullptr)
    {
        a = load_affine(e.affine, w.channel);
        sa = a;
        if (SKIP >= FLIM_SKIP_NORMALISED) {
            sa = load_affine(e.skip_affine, w.channel);
        }
        fixed = begin_grad_inputs<INPUTS>(dy, w.cell, c, w.channel, m);
        keep = load_keep(e.dropout, w.cell, c, w.channel);
        slope = e.act ? FLIM_LEAKY_SLOPE : 1.0f;
    }
};

/* The loads of one pixel q of y, whose first pixel of z is p. */
template <typename T, int SKIP, int POOL, int INPUTS> struct backward_pixel {
    raw8<T> z[POOL], skip[POOL];
    unsigned bits;
    gradient<T, INPUTS> g;

    /* left_out: a pixel of z that the pool leaves out, and dy's q is any. */
    __device__ __forceinline__ void load(const backward_walk<T, SKIP, INPUTS> &t, const grad_inputs_view &dy, int64_t pixels,
                                         unsigned q, unsigned p, bool left_out)
    {
        g.load(dy, t.w.cell, pixels, q, t.c, t.w.channel);
        bits = SKIP == FLIM_SKIP_SIGN_MASK ? t.sign_mask[(int64_t)p * (t.c / 8)] : 0;
#pragma unroll
        for (int h = 0; h < POOL; h++) {
            const int64_t at = (int64_t)(p + (left_out ? 0 : h * t.hw)) * t.c;
            z[h] = load_raw<T>(t.z + at);
            if (SKIP >= FLIM_SKIP_PLAIN) {
                skip[h] = load_raw<T>(t.skip + at);
            }
        }
    }

    __device__ __forceinline__ float8 skip_at(int h) const
    {
        float8 value = {};
        if (SKIP >= FLIM_SKIP_PLAIN) {
            value = unpack<T>(skip[h]);
        }
        return value;
    }
};

#endif
