/* A stand-in for NCCL between processes of one host, for tests of ranks where there are fewer cards than ranks: real NCCL wants a card each.
 *
 * Everything goes through shared memory that the card reads and writes, and functions of the host that wait for the other processes stand
 * between the copies in the stream; so a CUDA graph can hold it all.  Sums are in the ranks' order.  What does not fit is refused.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda/device/nccl_library.h"

enum {
    PLACE = 4 << 20, /* bytes that a rank gives at most */
    MOST_RANKS = 4,
    SYSTEM_ERROR = 2, /* ncclResult_t */
    INVALID_USAGE = 5,
    WAIT_SECONDS = 60
};

/* Where processes meet; behind it a place for each rank, and one for what a rank has summed. */
typedef struct meeting {
    atomic_int come, round, left;
} meeting;

typedef struct call {
    struct ncclComm *comm;
    size_t count;
    int type;
    struct call *before;
} call;

struct ncclComm {
    int rank, ranks;
    meeting *at;
    char *places; /* (ranks, PLACE), registered with the card */
    char *sum; /* (PLACE), this rank's */
    size_t bytes;
    call *calls; /* arguments of functions in streams and graphs: until the end */
    char name[64];
};

int ncclGetVersion(int *version);
int ncclGetUniqueId(flim_nccl_id *id);
int ncclCommInitRank(flim_nccl_comm *comm, int ranks, flim_nccl_id id, int rank);
int ncclCommDestroy(flim_nccl_comm comm);
int ncclCommAbort(flim_nccl_comm comm);
const char *ncclGetErrorString(int code);
const char *ncclGetLastError(flim_nccl_comm comm);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, flim_nccl_comm comm, cudaStream_t stream);
int ncclAllGather(const void *in, void *out, size_t count, int type, flim_nccl_comm comm, cudaStream_t stream);
int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, flim_nccl_comm comm, cudaStream_t stream);

static size_t size_of(int type)
{
    return type == FLIM_NCCL_DOUBLE ? sizeof(double) : sizeof(float);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until all ranks are here.  One that does not come has died: nobody else could end this process's stream. */
static void CUDART_CB meet(void *argument)
{
    struct ncclComm *c = ((call *)argument)->comm;
    const int round = atomic_load(&c->at->round);
    if (atomic_fetch_add(&c->at->come, 1) + 1 == c->ranks) {
        atomic_store(&c->at->come, 0);
        atomic_fetch_add(&c->at->round, 1);
        return;
    }
    for (const double from = now(); atomic_load(&c->at->round) == round;) {
        (void)sched_yield();
        if (now() - from > WAIT_SECONDS) {
            fprintf(stderr, "fake NCCL: rank %d has waited %d s for another\n", c->rank, WAIT_SECONDS);
            abort();
        }
    }
}

static void CUDART_CB meet_and_sum(void *argument)
{
    const call *k = argument;
    struct ncclComm *c = k->comm;
    meet(argument);
    for (size_t i = 0; i < k->count; i++) {
        if (k->type == FLIM_NCCL_DOUBLE) {
            double s = 0.0;
            for (int r = 0; r < c->ranks; r++) {
                s += ((const double *)(c->places + (size_t)r * PLACE))[i];
            }
            ((double *)c->sum)[i] = s;
        } else {
            float s = 0.0f;
            for (int r = 0; r < c->ranks; r++) {
                s += ((const float *)(c->places + (size_t)r * PLACE))[i];
            }
            ((float *)c->sum)[i] = s;
        }
    }
}

int ncclGetVersion(int *version)
{
    *version = 0;
    return FLIM_NCCL_SUCCESS;
}

int ncclGetUniqueId(flim_nccl_id *id)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    *id = (flim_nccl_id){{0}};
    snprintf(id->internal, sizeof id->internal, "/flim-nccl-%ld-%ld", (long)getpid(), (long)t.tv_nsec);
    return FLIM_NCCL_SUCCESS;
}

int ncclCommInitRank(flim_nccl_comm *comm, int ranks, flim_nccl_id id, int rank)
{
    const size_t header = 4096, bytes = header + 2 * (size_t)ranks * PLACE;
    struct ncclComm *c = calloc(1, sizeof *c);
    int code = ranks <= MOST_RANKS ? SYSTEM_ERROR : INVALID_USAGE;
    void *at = MAP_FAILED;
    *comm = NULL;
    if (!c || code == INVALID_USAGE) {
        free(c);
        return code;
    }
    const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (file >= 0) {
        (void)close(file);
    }
    if (at != MAP_FAILED && cudaHostRegister(at, bytes, cudaHostRegisterPortable) == cudaSuccess) {
        *c = (struct ncclComm){.rank = rank, .ranks = ranks, .at = at, .places = (char *)at + header, .bytes = bytes};
        c->sum = c->places + (size_t)(ranks + rank) * PLACE;
        memcpy(c->name, id.internal, sizeof c->name - 1);
        *comm = c;
        meet(&(call){.comm = c});
        return FLIM_NCCL_SUCCESS;
    }
    if (at != MAP_FAILED) {
        (void)munmap(at, bytes);
    }
    free(c);
    return code;
}

int ncclCommDestroy(flim_nccl_comm c)
{
    if (atomic_fetch_add(&c->at->left, 1) == 0) {
        (void)shm_unlink(c->name);
    }
    for (call *k = c->calls, *before; k; k = before) {
        before = k->before;
        free(k);
    }
    (void)cudaHostUnregister(c->at);
    (void)munmap(c->at, c->bytes);
    free(c);
    return FLIM_NCCL_SUCCESS;
}

int ncclCommAbort(flim_nccl_comm c)
{
    (void)shm_unlink(c->name); /* the rest is in use */
    return FLIM_NCCL_SUCCESS;
}

const char *ncclGetErrorString(int code)
{
    return code == INVALID_USAGE ? "more than the stand-in of the tests can take" : "system error";
}

const char *ncclGetLastError(flim_nccl_comm c)
{
    (void)c;
    return "";
}

/* What this rank gives into its place; `between` when all have come; to out as many bytes from each of `parts` places; and nobody goes on before
 * all have them. */
static int exchange(const void *in, void *out, cudaHostFn_t between, const char *from, int parts, call made,
                    cudaStream_t stream)
{
    struct ncclComm *c = made.comm;
    const size_t bytes = made.count * size_of(made.type);
    call *k = malloc(sizeof *k);
    if (!k || bytes > PLACE) {
        free(k);
        return INVALID_USAGE;
    }
    *k = made;
    k->before = c->calls;
    c->calls = k;
    cudaError_t code = cudaMemcpyAsync(c->places + (size_t)c->rank * PLACE, in, bytes, cudaMemcpyDeviceToHost, stream);
    code = code == cudaSuccess ? cudaLaunchHostFunc(stream, between, k) : code;
    for (int i = 0; code == cudaSuccess && i < parts; i++) {
        code =
            cudaMemcpyAsync((char *)out + (size_t)i * bytes, from + (size_t)i * PLACE, bytes, cudaMemcpyHostToDevice, stream);
    }
    code = code == cudaSuccess ? cudaLaunchHostFunc(stream, meet, k) : code;
    return code == cudaSuccess ? FLIM_NCCL_SUCCESS : SYSTEM_ERROR;
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, flim_nccl_comm comm, cudaStream_t stream)
{
    return op == FLIM_NCCL_SUM ? exchange(in, out, meet_and_sum, comm->sum, 1, (call){comm, count, type, NULL}, stream)
                               : INVALID_USAGE;
}

int ncclAllGather(const void *in, void *out, size_t count, int type, flim_nccl_comm comm, cudaStream_t stream)
{
    return exchange(in, out, meet, comm->places, comm->ranks, (call){comm, count, type, NULL}, stream);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, flim_nccl_comm comm, cudaStream_t stream)
{
    return exchange(in, out, meet, comm->places + (size_t)root * PLACE, 1, (call){comm, count, type, NULL}, stream);
}
