#include "cuda/program/ranks.h"

#include "core/alloc.h"
#include "cuda/device/check.h"

/* ---- buckets ---- */

static bool is_forward(const flim_operation *op)
{
    return op->kind == FLIM_OP_CONV || op->kind == FLIM_OP_STEM_FORWARD || op->kind == FLIM_OP_NORM ||
           op->kind == FLIM_OP_EPILOGUE || op->kind == FLIM_OP_HEAD;
}

/* The last operation that writes gradients of unit u (n_units + k: of head k). */
static int finished(const flim_schedule *s, int u)
{
    int last = 0;
    for (int i = 0; i < s->n_operations; i++) {
        const flim_operation *op = &s->operation[i];
        const flim_schedule_unit *su = &s->unit[op->unit];
        const bool head = op->kind == FLIM_OP_HEAD;
        if (head ? s->net->n_units + op->head == u
                 : op->unit == u || su->unit->input == u || su->unit->skip == u || su->partner == u) {
            last = i;
        }
    }
    return last;
}

static int end_of_forward(const flim_schedule *s)
{
    int end = -1;
    while (end + 1 < s->n_operations && is_forward(&s->operation[end + 1])) {
        end++;
    }
    return end;
}

/* The parameters' order backwards, which is about that of the backward pass: the same on all ranks, whatever their cards made
 * of the schedule. */
static void order_buckets(flim_cuda_ranks *r)
{
    for (int i = 0; i < r->n_buckets / 2; i++) {
        const flim_bucket kept = r->bucket[i];
        r->bucket[i] = r->bucket[r->n_buckets - 1 - i];
        r->bucket[r->n_buckets - 1 - i] = kept;
    }
    for (int i = 1; i < r->n_buckets; i++) {
        const int before = r->bucket[i - 1].ready;
        r->bucket[i].ready = r->bucket[i].ready > before ? r->bucket[i].ready : before;
    }
}

/* Parts of about equal size, whole tensors each. */
static void find_buckets(flim_cuda_program *p)
{
    const flim_network *net = &p->base.net;
    flim_cuda_ranks *r = &p->ranks;
    const int64_t each = (net->parameters + FLIM_BUCKETS - 1) / FLIM_BUCKETS;
    r->n_buckets = 0;
    for (int k = 0; k < net->n_tensors; k++) {
        const flim_tensor *t = &net->tensor[k];
        flim_bucket *b = r->n_buckets > 0 ? &r->bucket[r->n_buckets - 1] : NULL;
        if (flim_tensor_is_statistic(t)) {
            continue;
        }
        if (!b || (b->range.end - b->range.begin >= each && r->n_buckets < FLIM_BUCKETS)) {
            b = &r->bucket[r->n_buckets++];
            *b = (flim_bucket){.range = {t->offset, t->offset}};
        }
        const int ready = finished(&p->train, t->unit);
        b->range.end = t->offset + t->count;
        b->ready = ready > b->ready ? ready : b->ready;
    }
    order_buckets(r);
}

/* Count, and planes of storage channels: FLIM_MAX_PARTIAL_SUMS of a unit's gradient are the most. */
static int64_t widest_sums(const flim_network *net)
{
    int64_t widest = 8;
    for (int u = 0; u < net->n_units; u++) {
        const int c = flim_storage_channels(net->unit[u].out_channels);
        widest = c > widest ? c : widest;
    }
    for (int k = 0; k < net->n_heads; k++) {
        widest = net->head[k].hidden > widest ? net->head[k].hidden : widest;
    }
    return 1 + FLIM_MAX_PARTIAL_SUMS * widest;
}

void flim_cuda_ranks_init(flim_cuda_program *p)
{
    const flim_ranks *ranks = p->base.options.ranks;
    p->ranks.on = p->base.options.train_batch > 0 && flim_ranks_library(ranks)[0] != '\0';
    p->ranks.rank = flim_ranks_rank(ranks);
    p->ranks.size = flim_ranks_size(ranks);
    p->ranks.sync = p->ranks.on && p->base.options.sync_batchnorm && p->ranks.size > 1;
    p->ranks.sums = p->ranks.sync ? widest_sums(&p->base.net) : 0;
}

void flim_cuda_ranks_plan(flim_cuda_program *p)
{
    if (p->ranks.on) {
        p->ranks.forward_end = end_of_forward(&p->train);
        find_buckets(p);
    }
}

/* ---- the group ---- */

static flim_status check(const flim_cuda_ranks *r, int code, const char *what, flim_error *err)
{
    if (code == FLIM_NCCL_SUCCESS) {
        return FLIM_OK;
    }
    const char *more = r->nccl.last_error(r->comm);
    return flim_fail(err, FLIM_ERROR_DEVICE, "NCCL %d.%d.%d: %s failed: %s%s%s", r->nccl.version / 10000,
                     r->nccl.version / 100 % 100, r->nccl.version % 100, what, r->nccl.error_text(code),
                     more && more[0] ? ": " : "", more ? more : "");
}

/* What each rank can do alone; rank 0 makes the name under which all meet. */
static flim_status prepare(flim_cuda_program *p, flim_nccl_id *id, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    FLIM_TRY(flim_nccl_open(&r->nccl, err));
    FLIM_TRY(r->rank == 0 ? check(r, r->nccl.get_id(id), "ncclGetUniqueId", err) : FLIM_OK);
    FLIM_TRY_CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    FLIM_TRY_CUDA(cudaEventCreateWithFlags(&r->ready, cudaEventDisableTiming));
    FLIM_TRY_CUDA(cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming));
    return FLIM_OK;
}

/* One number for the order of the operations, in which BatchNorm's sums are shared. */
static uint64_t order_of(const flim_schedule *s)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int i = 0; i < s->n_operations; i++) {
        const flim_operation *op = &s->operation[i];
        const int part[] = {(int)op->kind, op->unit, op->kind == FLIM_OP_HEAD ? op->head : -1,
                            op->kind == FLIM_OP_DATA && op->in[FLIM_IN_Z] != FLIM_NO_BUFFER};
        for (size_t k = 0; k < sizeof part / sizeof part[0]; k++) {
            hash = (hash ^ (uint64_t)(unsigned)part[k]) * 1099511628211u;
        }
    }
    return hash;
}

/* Fusions depend on the card, and on what it computes wrongly. */
static flim_status check_order(flim_cuda_program *p, flim_error *err)
{
    const uint64_t own = order_of(&p->train);
    uint64_t *all = flim_alloc((size_t)p->ranks.size, sizeof *all, err); /* (ranks) */
    flim_status status = all ? FLIM_OK : FLIM_ERROR_MEMORY;
    FLIM_TRY_DONE(status);
    FLIM_TRY_DONE(flim_ranks_gather(p->base.options.ranks, &own, sizeof own, all, err));
    for (int r = 1; r < p->ranks.size && status == FLIM_OK; r++) {
        if (all[r] != all[0]) {
            status = flim_fail(
                err, FLIM_ERROR_DEVICE,
                "--sync-batchnorm: the card of rank %d computes the network by other kernels than that of rank 0, and "
                "their BatchNorms cannot wait for each other; use cards of one kind, or leave it out",
                r);
        }
    }
done:
    flim_free(all);
    return status;
}

flim_status flim_cuda_ranks_join(flim_cuda_program *p, flim_status status, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    flim_ranks *ranks = p->base.options.ranks;
    flim_nccl_id id = {{0}};
    if (!r->on) {
        return status;
    }
    status = status == FLIM_OK ? prepare(p, &id, err) : status;
    FLIM_TRY(flim_ranks_settle(ranks, status, err)); /* who meets waits for all */
    FLIM_TRY(r->sync ? check_order(p, err) : FLIM_OK);
    FLIM_TRY(flim_ranks_broadcast(ranks, &id, sizeof id, err));
    return check(r, r->nccl.init_rank(&r->comm, r->size, id, r->rank), "ncclCommInitRank", err);
}

void flim_cuda_ranks_leave(flim_cuda_program *p)
{
    flim_cuda_ranks *r = &p->ranks;
    if (r->comm) { /* a group that is broken has calls under way that nobody answers */
        (void)(flim_ranks_is_broken(p->base.options.ranks) ? r->nccl.abort_comm(r->comm) : r->nccl.destroy(r->comm));
    }
    if (r->stream) {
        (void)cudaStreamDestroy(r->stream);
    }
    if (r->ready) {
        (void)cudaEventDestroy(r->ready);
    }
    if (r->done) {
        (void)cudaEventDestroy(r->done);
    }
    flim_nccl_close(&r->nccl);
    r->comm = NULL;
    r->stream = NULL;
    r->ready = r->done = NULL;
}

/* ---- a step ---- */

/* What is enqueued on NCCL's stream from here on comes after what the compute stream has so far. */
static flim_status fork_stream(flim_cuda_program *p, flim_error *err)
{
    FLIM_TRY_CUDA(cudaEventRecord(p->ranks.ready, p->launch.stream));
    FLIM_TRY_CUDA(cudaStreamWaitEvent(p->ranks.stream, p->ranks.ready, 0));
    return FLIM_OK;
}

static flim_status join_stream(flim_cuda_program *p, flim_error *err)
{
    FLIM_TRY_CUDA(cudaEventRecord(p->ranks.done, p->ranks.stream));
    FLIM_TRY_CUDA(cudaStreamWaitEvent(p->launch.stream, p->ranks.done, 0));
    return FLIM_OK;
}

static flim_launch beside(const flim_cuda_program *p)
{
    flim_launch launch = p->launch;
    launch.stream = p->ranks.stream;
    return launch;
}

static flim_status copy_statistics(flim_cuda_program *p, float *to, const float *from, flim_error *err)
{
    FLIM_TRY_CUDA(
        cudaMemcpyAsync(to, from, (size_t)p->base.net.statistics * sizeof *to, cudaMemcpyDeviceToDevice, p->launch.stream));
    return FLIM_OK;
}

/* The running statistics, moved by all batches of this call in turn. */
static flim_status share_moves(flim_cuda_program *p, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    const int64_t n = p->base.net.statistics;
    const flim_launch launch = beside(p);
    FLIM_TRY(fork_stream(p, err));
    FLIM_TRY(check(r, r->nccl.all_gather(p->pending, r->all_moves, (size_t)n + 1, FLIM_NCCL_FLOAT, r->comm, r->stream),
                   "ncclAllGather", err));
    FLIM_TRY_CUDA(flim_k_make_moves(&launch, r->running, r->all_moves, n, r->size, &p->call.step->momentum));
    return FLIM_OK;
}

/* The rank with the batch of one cell has moved its own, behind those of the others. */
static flim_status share_single(flim_cuda_program *p, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    const int root = r->single - 1;
    const size_t n = (size_t)p->base.net.statistics;
    if (root == r->rank) {
        FLIM_TRY(copy_statistics(p, r->running, p->pending, err));
    }
    FLIM_TRY(fork_stream(p, err));
    return check(r, r->nccl.broadcast(r->running, r->running, n, FLIM_NCCL_FLOAT, root, r->comm, r->stream), "ncclBroadcast",
                 err);
}

flim_status flim_cuda_ranks_begin(flim_cuda_program *p, int64_t n, bool first, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    const bool single = r->single - 1 == r->rank;
    r->cells = n;
    if (first) {
        FLIM_TRY(copy_statistics(p, r->sync ? p->pending : r->running, p->statistics, err));
    }
    if (first && n == 0) {
        FLIM_TRY_CUDA(cudaMemsetAsync(p->gradients, 0, (size_t)p->base.net.parameters * sizeof(float), p->launch.stream));
    }
    if (r->sync) {
        return FLIM_OK;
    }
    FLIM_TRY_CUDA(flim_k_begin_moves(&p->launch, p->pending, p->base.net.statistics, n > 0 && !single));
    if (single) {
        FLIM_TRY(share_moves(p, err)); /* of the others */
        FLIM_TRY(join_stream(p, err));
        FLIM_TRY(copy_statistics(p, p->pending, r->running, err));
    }
    return FLIM_OK;
}

/* Sums bucket b over the ranks. */
static flim_status share_bucket(flim_cuda_program *p, const flim_bucket *b, bool first, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    const flim_weight_table *table = &p->weights_host;
    const size_t count = (size_t)(b->range.end - b->range.begin);
    float *part = p->gradients + b->range.begin;
    const flim_launch launch = beside(p);
    if (r->cells > 0) {
        FLIM_TRY_CUDA(flim_k_gather_range(&p->launch, p->weights, table->n, table->elements, b->range, &p->state->loss_scale,
                                          !first, p->gradients));
    }
    if (b->range.end == p->base.net.parameters && !p->dynamic) { /* fp16 leaves out the update by the gradients alone */
        FLIM_TRY_CUDA(flim_k_tell_nonfinite(&p->launch, p->state, p->gradients + b->range.end - 1));
    }
    FLIM_TRY(fork_stream(p, err));
    if (!r->all_gradients) {
        return check(r, r->nccl.all_reduce(part, part, count, FLIM_NCCL_FLOAT, FLIM_NCCL_SUM, r->comm, r->stream),
                     "ncclAllReduce", err);
    }
    float *all = r->all_gradients + r->size * b->range.begin; /* (ranks, count) */
    FLIM_TRY(check(r, r->nccl.all_gather(part, all, count, FLIM_NCCL_FLOAT, r->comm, r->stream), "ncclAllGather", err));
    FLIM_TRY_CUDA(flim_k_sum_ranks(&launch, part, all, (int64_t)count, r->size));
    return FLIM_OK;
}

flim_status flim_cuda_ranks_after(flim_cuda_program *p, int i, bool first, bool last, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    if (i == r->forward_end && !r->sync) {
        FLIM_TRY(r->single - 1 != r->rank ? share_moves(p, err) : FLIM_OK);
        FLIM_TRY(r->single > 0 ? share_single(p, err) : FLIM_OK);
    }
    for (int k = 0; k < r->n_buckets && last; k++) {
        if (i == r->bucket[k].ready) {
            FLIM_TRY(share_bucket(p, &r->bucket[k], first, err));
        }
    }
    return FLIM_OK;
}

flim_status flim_cuda_ranks_end(flim_cuda_program *p, flim_error *err)
{
    return join_stream(p, err);
}

/* ---- BatchNorm over all batches ---- */

flim_status flim_cuda_ranks_share(flim_cuda_program *p, int64_t count, flim_rank_sums *out, flim_error *err)
{
    flim_cuda_ranks *r = &p->ranks;
    *out = (flim_rank_sums){.all = r->all, .stride = count, .ranks = r->size, .rank = r->rank};
    FLIM_TRY(fork_stream(p, err));
    FLIM_TRY(check(r, r->nccl.all_gather(r->own, r->all, (size_t)count, FLIM_NCCL_DOUBLE, r->comm, r->stream),
                   "ncclAllGather", err));
    return join_stream(p, err);
}

flim_status flim_cuda_ranks_share_none(flim_cuda_program *p, int64_t count, flim_rank_sums *out, flim_error *err)
{
    FLIM_TRY_CUDA(cudaMemsetAsync(p->ranks.own, 0, (size_t)count * sizeof *p->ranks.own, p->launch.stream));
    return flim_cuda_ranks_share(p, count, out, err);
}
