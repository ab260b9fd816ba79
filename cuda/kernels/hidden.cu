/* Hidden voxels: which they are (data/hide_math.h), the network's input without them, and the loss over them with its baseline
 * (backend/hidden.h).  A plane of floats, `voxel`, says of each voxel what it is (flim_voxel_of). */
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vector.cuh"

#include "backend/hidden.h"
#include "data/hide_math.h"

enum { THREADS = 256, BOX_THREADS = 1024 };

/* ---- the input ----------------------------------------------------------------------------------------------------------- */

/* Nothing is hidden yet.  blockIdx.y goes over the cells. */
__global__ void __launch_bounds__(THREADS) voxel_kernel(const float *__restrict__ signal, const uint8_t *__restrict__ mask,
                                                        int voxels, int pixels, float *__restrict__ voxel)
{
    const int64_t cell = blockIdx.y;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < voxels; i += gridDim.x * THREADS) {
        voxel[cell * voxels + i] = flim_voxel_of(signal[cell * voxels + i], mask[cell * pixels + i % pixels] != 0, 0);
    }
}

__device__ __forceinline__ bool is_seen(float voxel)
{
    return voxel < 0.0f && voxel != FLIM_VOXEL_OUTSIDE;
}

/* Hides up to `most` seen voxels of the box, the first ones; returns how many.  All threads of the block. */
__device__ static int64_t hide_box(const flim_hide_box &box, int64_t most, int h, int w, float *voxel)
{
    __shared__ int before[BOX_THREADS / 32]; /* hidden by each warp */
    const int width = box.x1 - box.x0, plane = (box.y1 - box.y0) * width, count = (box.t1 - box.t0) * plane;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t done = 0;
    for (int first = 0; first < count && done < most; first += BOX_THREADS) {
        const int i = first + threadIdx.x, in_plane = i % plane;
        const int64_t at = ((int64_t)(box.t0 + i / plane) * h + box.y0 + in_plane / width) * w + box.x0 + in_plane % width;
        const bool seen = i < count && is_seen(voxel[at]);
        int64_t rank = 0;
        const int found = __syncthreads_count(seen);
        if (found > most - done) { /* the last ones stay seen */
            const unsigned ballot = __ballot_sync(0xffffffffu, seen);
            if (lane == 0) {
                before[warp] = __popc(ballot);
            }
            __syncthreads();
            for (int k = 0; k < warp; k++) {
                rank += before[k];
            }
            rank += __popc(ballot & ((1u << lane) - 1));
            __syncthreads();
        }
        if (seen && rank < most - done) {
            voxel[at] = -1.0f - voxel[at];
        }
        done += found < most - done ? found : most - done;
    }
    __syncthreads();
    return done;
}

/* One block per cell. */
__global__ void __launch_bounds__(BOX_THREADS)
    hide_kernel(const uint8_t *__restrict__ masks, const flim_cell_id *__restrict__ id, const uint32_t *share, int t, int h,
                int w, float *voxels)
{
    __shared__ flim_hide_bounds shared;
    const int64_t cell = blockIdx.x, pixels = (int64_t)h * w;
    const uint8_t *mask = masks + cell * pixels;
    float *voxel = voxels + cell * pixels * t;
    int inside = 0;
    if (threadIdx.x == 0) {
        shared = {t, h, 0, w, 0};
    }
    __syncthreads();
    for (int p = threadIdx.x; p < pixels; p += BOX_THREADS) {
        if (mask[p] != 0) {
            inside++;
            atomicMin(&shared.y0, p / w);
            atomicMax(&shared.y1, p / w + 1);
            atomicMin(&shared.x0, p % w);
            atomicMax(&shared.x1, p % w + 1);
        }
    }
    inside = block_sum<BOX_THREADS>(inside);
    const flim_hide_bounds bounds = shared;
    const int64_t wanted = flim_hide_count((int64_t)inside * t, *share);
    int64_t done = 0;
    for (uint32_t i = 0; done < wanted && i < FLIM_MOST_BOXES; i++) {
        done += hide_box(flim_hide_box_at(&id[cell], i, &bounds), wanted - done, h, w, voxel);
    }
    const flim_hide_box all = {0, t, 0, h, 0, w};
    (void)hide_box(all, wanted - done, h, w, voxel);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    hidden_input_kernel(const float *__restrict__ signal, const float *__restrict__ voxel, int64_t voxels, int c,
                        T *__restrict__ x)
{
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < voxels; i += (int64_t)gridDim.x * THREADS) {
        const float what = voxel[i];
        const bool hidden = what >= 0.0f;
        store8<T>(x + i * c, {{hidden ? 0.0f : signal[i], what != FLIM_VOXEL_OUTSIDE ? 1.0f : 0.0f, hidden ? 1.0f : 0.0f, 0,
                               0, 0, 0, 0}});
    }
}

cudaError_t flim_k_hide(const flim_launch *l, const float *signal, const uint8_t *mask, const flim_cell_id *id,
                        const uint32_t *share, int64_t n, int t, int h, int w, float *voxel, void *x)
{
    const int pixels = h * w, voxels = t * pixels;
    const int64_t blocks = (n * voxels + THREADS - 1) / THREADS;
    const dim3 grid((unsigned)((voxels + 4 * THREADS - 1) / (4 * THREADS)), (unsigned)n);
    voxel_kernel<<<grid, THREADS, 0, l->stream>>>(signal, mask, voxels, pixels, voxel);
    hide_kernel<<<(unsigned)n, BOX_THREADS, 0, l->stream>>>(mask, id, share, t, h, w, voxel);
    FLIM_BY_TYPE(l->type,
                 (hidden_input_kernel<T><<<(unsigned)(blocks < (1 << 20) ? blocks : 1 << 20), THREADS, 0, l->stream>>>(
                     signal, voxel, n * voxels, 8, (T *)x)));
    return cudaGetLastError();
}

/* ---- the loss ------------------------------------------------------------------------------------------------------------ */

/* A cell's part of d.margins: factors of bins (T) and of pixels (H,W), and what bins are made of. */
struct margins {
    double *bin, *bin_photons, *bin_voxels; /* (T) */
    double *pixel; /* (H,W) */
};

__device__ static margins margins_of(const flim_hidden_kernels &d, int64_t cell)
{
    double *at = d.margins + cell * (3 * d.t + d.plane);
    return {at, at + d.t, at + 2 * d.t, at + 3 * d.t};
}

__device__ static double bin_factor(const margins &m, double mean, int t, int bins)
{
    int before = t, after = t;
    while (before >= 0 && m.bin_voxels[before] == 0) {
        before--;
    }
    while (after < bins && m.bin_voxels[after] == 0) {
        after++;
    }
    const double b = before < 0 ? 0 : flim_baseline_factor(m.bin_photons[before], mean * m.bin_voxels[before]);
    const double a = after == bins ? 0 : flim_baseline_factor(m.bin_photons[after], mean * m.bin_voxels[after]);
    return before == t ? b : flim_baseline_between(b, before < 0 ? 0 : t - before, a, after == bins ? 0 : after - t);
}

/* One block per cell: the baseline's mean and factors; hidden voxels and photons into d.cell. */
__global__ void __launch_bounds__(THREADS) margins_kernel(flim_hidden_kernels d)
{
    const int64_t cell = blockIdx.x;
    const float *voxel = d.voxel + cell * d.t * d.plane;
    const margins m = margins_of(d, cell);
    const int lane = threadIdx.x % 32;
    double photons = 0, voxels = 0, hidden = 0, hidden_photons = 0; /* of lane 0: of its warp's bins */
    for (int t = threadIdx.x / 32; t < d.t; t += THREADS / 32) {
        double n = 0, v = 0, hn = 0, hv = 0;
        for (int p = lane; p < d.plane; p += 32) {
            const float x = voxel[t * d.plane + p];
            const bool seen = is_seen(x), is_hidden = x >= 0.0f;
            n += seen ? (double)(-1.0f - x) : 0;
            v += seen;
            hn += is_hidden ? (double)x : 0;
            hv += is_hidden;
        }
        n = warp_sum(n); /* of whole numbers: exact */
        v = warp_sum(v);
        hn = warp_sum(hn);
        hv = warp_sum(hv);
        if (lane == 0) {
            m.bin_photons[t] = n;
            m.bin_voxels[t] = v;
            photons += n;
            voxels += v;
            hidden += hv;
            hidden_photons += hn;
        }
    }
    photons = block_sum<THREADS>(photons);
    voxels = block_sum<THREADS>(voxels);
    hidden = block_sum<THREADS>(hidden);
    hidden_photons = block_sum<THREADS>(hidden_photons);
    const double mean = flim_baseline_mean(photons, voxels);
    for (int t = threadIdx.x; t < d.t; t += THREADS) {
        m.bin[t] = bin_factor(m, mean, t, d.t);
    }
    __syncthreads();
    for (int p = threadIdx.x; p < d.plane; p += THREADS) {
        double n = 0, expected = 0;
        for (int t = 0; t < d.t; t++) {
            const float x = voxel[t * d.plane + p];
            n += is_seen(x) ? (double)(-1.0f - x) : 0;
            expected += is_seen(x) ? m.bin[t] : 0;
        }
        m.pixel[p] = mean * flim_baseline_factor(n, mean * expected);
    }
    if (threadIdx.x == 0) {
        d.cell[2 * cell] = hidden;
        d.cell[2 * cell + 1] = hidden_photons;
    }
}

/* blockIdx.y goes over the cells, the FLIM_HIDDEN_PARTS blocks of one share its voxels; d.dy NULL: sums only. */
template <typename T> __global__ void __launch_bounds__(THREADS) hidden_loss_kernel(flim_hidden_kernels d)
{
    const int64_t cell = blockIdx.y;
    const int voxels = d.t * d.plane;
    const float *voxel = d.voxel + cell * voxels;
    const T *y = (const T *)d.y + cell * voxels * d.c;
    T *dy = d.dy ? (T *)d.dy + cell * voxels * d.c : NULL;
    const margins m = margins_of(d, cell);
    const double count = d.cell[2 * cell];
    double share = 0, loss = 0, baseline = 0;
    if (dy && count > 0) {
        const double weight = flim_cell_weight(&d.head, d.batch.weight[cell], d.batch.label[cell]);
        share = weight * d.head.weight / *d.batch.divisor * *d.batch.loss_scale * d.scale / count;
    }
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < voxels; i += FLIM_HIDDEN_PARTS * THREADS) {
        const float what = voxel[i];
        double slope = 0;
        if (what >= 0.0f) {
            const flim_target target = {.label = 0,
                                        .smoothing = 0,
                                        .gamma = 0,
                                        .distribution = NULL,
                                        .signal = flim_hidden_target(d.head.loss, what)};
            const float value = to_float(y[(int64_t)i * d.c]);
            double norm[FLIM_LOSS_NORMS] = {0};
            loss += flim_loss_of(d.head.loss, &value, 1, &target, norm);
            slope = flim_loss_slope(d.head.loss, &value, 0, 1, &target, norm);
            baseline += flim_poisson_loss(m.bin[i / d.plane] * m.pixel[i % d.plane], (double)what);
        }
        if (dy) {
            store8<T>(dy + (int64_t)i * d.c, {{(float)(slope * share), 0, 0, 0, 0, 0, 0, 0}});
        }
    }
    loss = block_sum<THREADS>(loss);
    baseline = block_sum<THREADS>(baseline);
    if (threadIdx.x == 0) {
        double *partial = d.partial + 2 * (cell * FLIM_HIDDEN_PARTS + blockIdx.x);
        partial[0] = loss;
        partial[1] = baseline;
    }
}

/* One block: sums of the cells, and the losses of the batch. */
__global__ void __launch_bounds__(THREADS) hidden_finish_kernel(flim_hidden_kernels d)
{
    double sum[4] = {0};
    for (int64_t n = threadIdx.x; n < d.cells; n += THREADS) {
        const double *partial = d.partial + 2 * n * FLIM_HIDDEN_PARTS;
        double loss = 0, baseline = 0;
        for (int k = 0; k < FLIM_HIDDEN_PARTS; k++) {
            loss += partial[2 * k];
            baseline += partial[2 * k + 1];
        }
        const double count = d.cell[2 * n];
        sum[0] += count;
        sum[1] += d.cell[2 * n + 1];
        sum[2] += loss;
        sum[3] += baseline;
        if (d.dy) {
            const double weight = flim_cell_weight(&d.head, d.batch.weight[n], d.batch.label[n]);
            const double own = count > 0 ? loss / count * weight * d.head.weight : 0;
            d.sums.loss[n] = d.sums.add ? d.sums.loss[n] + own : own;
            if (!d.sums.add) {
                d.sums.correct[n] = 0;
                if (d.sums.weight) {
                    d.sums.weight[n] = (float)weight;
                }
            }
        }
    }
    for (int k = 0; k < 4; k++) {
        sum[k] = block_sum<THREADS>(sum[k]);
    }
    if (threadIdx.x == 0) {
        d.totals->voxels += sum[0];
        d.totals->photons += sum[1];
        d.totals->loss += sum[2];
        d.totals->baseline += sum[3];
        if (d.dy) {
            *d.dy_scale = (float)d.scale;
        }
    }
}

cudaError_t flim_k_hidden_loss(const flim_launch *l, const flim_hidden_kernels *d)
{
    const dim3 grid(FLIM_HIDDEN_PARTS, (unsigned)d->cells);
    margins_kernel<<<(unsigned)d->cells, THREADS, 0, l->stream>>>(*d);
    FLIM_BY_TYPE(l->type, (hidden_loss_kernel<T><<<grid, THREADS, 0, l->stream>>>(*d)));
    hidden_finish_kernel<<<1, THREADS, 0, l->stream>>>(*d);
    return cudaGetLastError();
}
