/* What both backward passes over an epilogue load: z, the skip or its sign mask, and the gradient of y, at the pixels of y.
 *
 * For: epilogue_sums.cu and epilogue_backward.cu.
 */
#ifndef FLIM_CUDA_EPILOGUE_BACKWARD_CUH
#define FLIM_CUDA_EPILOGUE_BACKWARD_CUH

#include "cuda/kernels/copy_async.cuh"
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

    __device__ __forceinline__ backward_walk(const flim_epilogue &e, const flim_grad_inputs &dy, const flim_blocks &b,
                                             bool reversed)
        : w(b, e.c, reversed), c(e.c), hw((unsigned)e.hw), base(w.cell * e.t * e.hw * e.c + w.channel),
          z((const T *)e.z + base), skip((const T *)e.skip_in + base),
          sign_mask(SKIP == FLIM_SKIP_SIGN_MASK ? e.sign_mask + base / 8 : nullptr)
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

/* The loads of one pixel q of y, whose first pixel of z is p.  They wait in a queue in shared memory, many pixels ahead: in registers,
 * of which these kernels have none left, one pixel's loads do not keep an H200's memory busy (two thirds of its rate; with ANY,
 * where dy is loaded as it is added, and in fp32 it stays so). */
template <typename T, int SKIP, int POOL, int INPUTS> struct backward_pixel {
    enum {
        SKIPS = SKIP >= FLIM_SKIP_PLAIN ? POOL : 0,
        GRADIENT = POOL + SKIPS, /* its first vector, behind those of z and the skip */
        VECTORS = GRADIENT + grad_loads<INPUTS>::VECTORS,
        QUEUED = INPUTS != ANY && sizeof(T) == 2
    };
    using queue = load_queue<VECTORS, SKIP == FLIM_SKIP_SIGN_MASK ? 1 : 0>;

    raw8<T> loaded[VECTORS];
    unsigned bits;

    /* load(vector, address, whether there is something) for each; left_out: a pixel of z that the pool leaves out, and dy's q is any. */
    template <typename LOAD>
    static __device__ __forceinline__ void each(const backward_walk<T, SKIP, INPUTS> &t, const grad_inputs_view &dy,
                                                int64_t pixels, unsigned q, unsigned p, bool left_out, LOAD load)
    {
        load_gradient<T, INPUTS>(dy, t.w.cell, pixels, q, t.c, t.w.channel,
                                 [&](int k, const T *at, bool there) { load(GRADIENT + k, at, there); });
#pragma unroll
        for (int h = 0; h < POOL; h++) {
            const int64_t at = (int64_t)(p + (left_out ? 0 : h * t.hw)) * t.c;
            load(h, t.z + at, true);
            if (SKIP >= FLIM_SKIP_PLAIN) {
                load(POOL + h, t.skip + at, true);
            }
        }
    }

    __device__ __forceinline__ const raw8<T> &z(int h) const
    {
        return loaded[h];
    }
    __device__ __forceinline__ float8 skip(int h) const
    {
        float8 value = {};
        if (SKIP >= FLIM_SKIP_PLAIN) {
            value = unpack<T>(loaded[SKIPS > 0 ? POOL + h : 0]);
        }
        return value;
    }
    __device__ __forceinline__ float8 gradient(const backward_walk<T, SKIP, INPUTS> &t, const grad_inputs_view &dy,
                                               int64_t pixels, unsigned q) const
    {
        return gradient_value<T, INPUTS>(loaded + (GRADIENT < VECTORS ? (int)GRADIENT : 0), dy, t.m, t.fixed, t.w.cell,
                                         pixels, q, t.c, t.w.channel);
    }

    /* use(pixel, q, p, left_out) for every pixel of the walk.  Pixels from `pooled` on are the last time bin of an odd T, which the
     * pool leaves out.  shared: queue::BYTES if QUEUED. */
    template <typename USE>
    static __device__ __forceinline__ void walk_over(const backward_walk<T, SKIP, INPUTS> &t, const grad_inputs_view &dy,
                                                     const divisor &by_hw, unsigned pooled, void *shared, USE use)
    {
        auto first_of = [&](unsigned q, bool out) { return out ? q + pooled : pooled_from<POOL>(q, by_hw); };
        auto mask_of = [&](unsigned p) { return t.sign_mask + (int64_t)p * (t.c / 8); };
        const unsigned begin = t.w.begin + t.w.lane;
        if constexpr (QUEUED) {
            const queue line(shared);
            queue::walk(
                begin, t.w.end, t.w.lanes,
                [&](int slot, unsigned q) {
                    const bool out = POOL == 2 && q >= pooled;
                    const unsigned p = first_of(q, out);
                    each(t, dy, pooled, out ? 0 : q, p, out,
                         [&](int k, const T *at, bool there) { line.load(slot, k, at, there); });
                    if (SKIP == FLIM_SKIP_SIGN_MASK) { /* the four bytes that hold the one */
                        line.load_word(
                            slot, reinterpret_cast<const void *>(reinterpret_cast<uintptr_t>(mask_of(p)) & ~(uintptr_t)3));
                    }
                },
                [&](int slot, unsigned q) {
                    const bool out = POOL == 2 && q >= pooled;
                    const unsigned p = first_of(q, out);
                    backward_pixel x;
#pragma unroll
                    for (int k = 0; k < VECTORS; k++) {
                        const uint4 bits = line.vector(slot, k);
                        x.loaded[k] = load_raw<T>(reinterpret_cast<const T *>(&bits));
                    }
                    x.bits = SKIP == FLIM_SKIP_SIGN_MASK
                                 ? line.word(slot) >> 8 * (reinterpret_cast<uintptr_t>(mask_of(p)) & 3)
                                 : 0;
                    use(x, q, p, out);
                });
        } else {
            for (unsigned q = begin; q < t.w.end; q += t.w.lanes) {
                const bool out = POOL == 2 && q >= pooled;
                const unsigned p = first_of(q, out);
                backward_pixel x;
                each(t, dy, pooled, out ? 0 : q, p, out, [&](int k, const T *at, bool) { x.loaded[k] = load_raw<T>(at); });
                x.bits = SKIP == FLIM_SKIP_SIGN_MASK ? *mask_of(p) : 0;
                use(x, q, p, out);
            }
        }
    }

    /* Dynamic shared memory of a block of so many threads, its sums (8 floats a thread) included, which take the queue's place. */
    static int shared_bytes(int threads)
    {
        const int queued = QUEUED ? (int)queue::BYTES : 0;
        return queued > threads * 32 ? queued : threads * 32;
    }
};

#endif
