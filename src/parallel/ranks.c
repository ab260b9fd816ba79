#include "parallel/ranks_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

/* srun without PMIx starts processes that cannot find each other: each would train alone, over the others' files. */
static flim_status check_launcher(flim_error *err)
{
    const char *step = getenv("SLURM_STEP_ID"), *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (step && tasks && strcmp(tasks, "1") != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--parallel data: srun started %.20s processes that cannot find each other; start them with srun "
                         "--mpi=pmix, or with mpirun",
                         tasks);
    }
    return FLIM_OK;
}

flim_status flim_ranks_open(flim_ranks **out, flim_error *err)
{
    *out = NULL;
    if (flim_mpi_is_launched()) {
        return flim_mpi_open(out, err);
    }
    FLIM_TRY(check_launcher(err));
    *out = flim_alloc(1, sizeof **out, err);
    FLIM_TRY(*out ? FLIM_OK : FLIM_ERROR_MEMORY);
    **out = (flim_ranks){.size = 1, .local_size = 1};
    return FLIM_OK;
}

void flim_ranks_break(flim_ranks *ranks)
{
    if (ranks) {
        ranks->broken = true;
    }
}

bool flim_ranks_is_broken(const flim_ranks *ranks)
{
    return ranks && ranks->broken;
}

void flim_ranks_close(flim_ranks *ranks, int code)
{
    if (!ranks) {
        return;
    }
    flim_free(ranks->scratch);
    if (!ranks->ops) {
        flim_free(ranks);
        return;
    }
    if (ranks->broken && ranks->size > 1) {
        ranks->ops->end_all(ranks, code); /* does not return */
    }
    ranks->ops->close(ranks);
}

int flim_ranks_size(const flim_ranks *ranks)
{
    return ranks ? ranks->size : 1;
}

int flim_ranks_rank(const flim_ranks *ranks)
{
    return ranks ? ranks->rank : 0;
}

int flim_ranks_local_rank(const flim_ranks *ranks)
{
    return ranks ? ranks->local_rank : 0;
}

int flim_ranks_local_size(const flim_ranks *ranks)
{
    return ranks ? ranks->local_size : 1;
}

const char *flim_ranks_host(const flim_ranks *ranks)
{
    return ranks ? ranks->host : "";
}

const char *flim_ranks_library(const flim_ranks *ranks)
{
    return ranks ? ranks->library : "";
}

static bool alone(const flim_ranks *ranks)
{
    return !ranks || ranks->size == 1;
}

/* Before each exchange of several ranks. */
static flim_status check_whole(const flim_ranks *ranks, flim_error *err)
{
    return ranks->broken ? flim_fail(err, FLIM_ERROR, "rank %d of %d has left the others", ranks->rank, ranks->size)
                         : FLIM_OK;
}

/* Room for this many bytes, kept for the next time. */
static flim_status need_scratch(flim_ranks *ranks, size_t bytes, flim_error *err)
{
    if (bytes > ranks->scratch_bytes) {
        flim_free(ranks->scratch);
        ranks->scratch_bytes = 0;
        ranks->scratch = flim_alloc_aligned(bytes, 1, err);
        FLIM_TRY(ranks->scratch ? FLIM_OK : FLIM_ERROR_MEMORY);
        ranks->scratch_bytes = bytes;
    }
    return FLIM_OK;
}

/* Sums parts[0] + parts[1] + ... of `count` values each into parts[0]. */
static void add_parts(float *parts, size_t count, int n)
{
    for (int r = 1; r < n; r++) {
        const float *part = parts + (size_t)r * count;
        for (size_t i = 0; i < count; i++) {
            parts[i] += part[i];
        }
    }
}

/* Each rank sums a share of the values, of which all send it theirs; then the shares are gathered: as few bytes as any sum
 * takes, and a fixed order. */
flim_status flim_ranks_sum_floats(flim_ranks *ranks, float *values, size_t count, flim_error *err)
{
    const size_t n = (size_t)flim_ranks_size(ranks), each = (count + n - 1) / n, bytes = count * sizeof *values;
    if (alone(ranks) || count == 0) {
        return FLIM_OK;
    }
    FLIM_TRY(check_whole(ranks, err));
    FLIM_TRY(need_scratch(ranks, 2 * n * each * sizeof *values, err));
    float *all = (float *)(void *)ranks->scratch, *parts = all + n * each; /* (n, each) values */
    memcpy(all, values, bytes);
    memset(all + count, 0, n * each * sizeof *values - bytes);
    FLIM_TRY(ranks->ops->exchange(ranks, all, each * sizeof *values, parts, err));
    add_parts(parts, each, (int)n);
    FLIM_TRY(ranks->ops->gather(ranks, parts, each * sizeof *values, all, err));
    memcpy(values, all, bytes);
    return FLIM_OK;
}

flim_status flim_ranks_gather(flim_ranks *ranks, const void *mine, size_t bytes, void *all, flim_error *err)
{
    if (alone(ranks)) {
        memcpy(all, mine, bytes);
        return FLIM_OK;
    }
    FLIM_TRY(check_whole(ranks, err));
    return ranks->ops->gather(ranks, mine, bytes, all, err);
}

static flim_status broadcast(flim_ranks *ranks, void *bytes, size_t count, bool patient, flim_error *err)
{
    if (alone(ranks)) {
        return FLIM_OK;
    }
    FLIM_TRY(check_whole(ranks, err));
    return ranks->ops->broadcast(ranks, bytes, count, patient, err);
}

flim_status flim_ranks_broadcast(flim_ranks *ranks, void *bytes, size_t count, flim_error *err)
{
    return broadcast(ranks, bytes, count, false, err);
}

flim_status flim_ranks_await(flim_ranks *ranks, void *bytes, size_t count, flim_error *err)
{
    return broadcast(ranks, bytes, count, true, err);
}

/* What a rank has to say. */
typedef struct verdict {
    int status;
    char host[256];
    char text[1024];
} verdict;

flim_status flim_ranks_settle(flim_ranks *ranks, flim_status status, flim_error *err)
{
    if (alone(ranks)) {
        return status;
    }
    FLIM_TRY(check_whole(ranks, err));
    const size_t n = (size_t)ranks->size;
    verdict mine = {.status = (int)status};
    flim_status settled = FLIM_OK;
    verdict *all = flim_alloc(n, sizeof *all, err); /* (n) */
    FLIM_TRY(all ? FLIM_OK : FLIM_ERROR_MEMORY);
    snprintf(mine.host, sizeof mine.host, "%s", ranks->host);
    snprintf(mine.text, sizeof mine.text, "%.1000s", status != FLIM_OK && err ? err->text : "");
    settled = ranks->ops->gather(ranks, &mine, sizeof mine, all, err);
    for (size_t r = 0; r < n && settled == FLIM_OK; r++) {
        if (all[r].status == FLIM_OK) {
            continue;
        }
        settled = r == 0 ? flim_fail(err, (flim_status)all[r].status, "%s", all[r].text)
                         : flim_fail(err, (flim_status)all[r].status, "rank %zu of %zu (on %s): %s", r, n, all[r].host,
                                     all[r].text);
    }
    flim_free(all);
    return settled;
}
