/* Ranks joined by Open MPI, whose library is opened at run time: a program that was built with it runs without it, too, as
 * long as nobody starts it with mpirun.  Handles as MPI_COMM_WORLD are addresses in that library, which its header would have
 * the linker find; they are looked up by the names that the header gives them (ompi_mpi_comm_world). */
#include "parallel/ranks_internal.h"

#include <stdlib.h>

#include "core/alloc.h"

#ifdef FLIM_HAVE_MPI
#include <dlfcn.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/dl.h"
#include "core/try.h"

/* Open MPI 4 and 5 have the same ABI and name. */
#define LIBRARY "libmpi.so.40"

typedef struct mpi_ranks {
    flim_ranks base;
    void *library;
    MPI_Comm world;
    MPI_Datatype byte;
    int (*init)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*abort_all)(MPI_Comm comm, int code);
    int (*comm_rank)(MPI_Comm comm, int *rank);
    int (*comm_size)(MPI_Comm comm, int *size);
    int (*comm_split_type)(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out);
    int (*comm_free)(MPI_Comm *comm);
    int (*set_errhandler)(MPI_Comm comm, MPI_Errhandler handler);
    int (*error_string)(int code, char *text, int *length);
    int (*library_version)(char *text, int *length);
    int (*all_to_all)(const void *in, int n_in, MPI_Datatype type_in, void *out, int n_out, MPI_Datatype type_out, MPI_Comm);
    int (*all_gather)(const void *in, int n_in, MPI_Datatype type_in, void *out, int n_out, MPI_Datatype type_out, MPI_Comm);
    int (*bcast)(void *bytes, int count, MPI_Datatype type, int root, MPI_Comm comm);
    int (*ibcast)(void *bytes, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *out);
    int (*test)(MPI_Request *request, int *done, MPI_Status *status);
} mpi_ranks;

/* A call's count is an int; all ranks cut the bytes alike. */
enum { MOST_BYTES = 1 << 28 };

static mpi_ranks *of(flim_ranks *ranks)
{
    return (mpi_ranks *)(void *)ranks;
}

static flim_status check(const mpi_ranks *m, int code, const char *what, flim_error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) {
        return FLIM_OK;
    }
    (void)m->error_string(code, text, &length);
    return flim_fail(err, FLIM_ERROR, "MPI, rank %d of %d: %s: %.*s", m->base.rank, m->base.size, what, length, text);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static flim_status exchange(flim_ranks *ranks, const void *in, size_t bytes, void *out, flim_error *err)
{
    const mpi_ranks *m = of(ranks);
    if (bytes > MOST_BYTES) {
        return flim_fail(err, FLIM_ERROR, "internal: %zu bytes for each rank in one exchange", bytes);
    }
    return check(m, m->all_to_all(in, (int)bytes, m->byte, out, (int)bytes, m->byte, m->world), "exchange", err);
}

static flim_status gather(flim_ranks *ranks, const void *mine, size_t bytes, void *all, flim_error *err)
{
    const mpi_ranks *m = of(ranks);
    if (bytes > MOST_BYTES) {
        return flim_fail(err, FLIM_ERROR, "internal: %zu bytes of each rank in one gather", bytes);
    }
    return check(m, m->all_gather(mine, (int)bytes, m->byte, all, (int)bytes, m->byte, m->world), "gather", err);
}

/* A broadcast waits in a loop that takes all of a core; here the core is free for the others. */
static flim_status broadcast_asleep(const mpi_ranks *m, char *bytes, int count, flim_error *err)
{
    MPI_Request request;
    int done = 0;
    FLIM_TRY(check(m, m->ibcast(bytes, count, m->byte, 0, m->world, &request), "broadcast", err));
    for (int turn = 0;; turn++) {
        FLIM_TRY(check(m, m->test(&request, &done, MPI_STATUS_IGNORE), "broadcast", err));
        if (done) {
            return FLIM_OK;
        }
        if (turn < 100) {
            sched_yield();
        } else {
            const struct timespec moment = {.tv_nsec = 200000};
            nanosleep(&moment, NULL);
        }
    }
}

static flim_status broadcast(flim_ranks *ranks, void *bytes, size_t count, bool patient, flim_error *err)
{
    const mpi_ranks *m = of(ranks);
    for (size_t at = 0; at < count; at += MOST_BYTES) {
        char *part = (char *)bytes + at;
        const int n = (int)smaller(count - at, MOST_BYTES);
        FLIM_TRY(patient ? broadcast_asleep(m, part, n, err)
                         : check(m, m->bcast(part, n, m->byte, 0, m->world), "broadcast", err));
    }
    return FLIM_OK;
}

static void end_all(flim_ranks *ranks, int code)
{
    (void)of(ranks)->abort_all(of(ranks)->world, code);
}

static void close_ranks(flim_ranks *ranks)
{
    mpi_ranks *m = of(ranks);
    (void)m->finalize();
    flim_free(m); /* the library stays open: it has threads and handlers of its own */
}

static flim_status find_functions(mpi_ranks *m, flim_error *err)
{
    const struct {
        const char *name;
        void *function;
    } all[] = {{"MPI_Init_thread", &m->init},
               {"MPI_Finalize", &m->finalize},
               {"MPI_Abort", &m->abort_all},
               {"MPI_Comm_rank", &m->comm_rank},
               {"MPI_Comm_size", &m->comm_size},
               {"MPI_Comm_split_type", &m->comm_split_type},
               {"MPI_Comm_free", &m->comm_free},
               {"MPI_Comm_set_errhandler", &m->set_errhandler},
               {"MPI_Error_string", &m->error_string},
               {"MPI_Get_library_version", &m->library_version},
               {"MPI_Alltoall", &m->all_to_all},
               {"MPI_Allgather", &m->all_gather},
               {"MPI_Bcast", &m->bcast},
               {"MPI_Ibcast", &m->ibcast},
               {"MPI_Test", &m->test},
               {"ompi_mpi_comm_world", &m->world},
               {"ompi_mpi_byte", &m->byte}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!flim_dl_find(m->library, all[i].name, all[i].function)) {
            return flim_fail(err, FLIM_ERROR_USAGE, "--parallel data: %s is no library of Open MPI: it lacks %s", LIBRARY,
                             all[i].name);
        }
    }
    return FLIM_OK;
}

/* "Open MPI v4.1.4", of a longer text. */
static void name_library(mpi_ranks *m)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    (void)m->library_version(text, &length);
    snprintf(m->base.library, sizeof m->base.library, "%.*s", (int)strcspn(text, ","), text);
}

/* MPI's own way to end on an error names neither the call nor the run. */
static flim_status return_errors(mpi_ranks *m, flim_error *err)
{
    MPI_Errhandler handler;
    if (!flim_dl_find(m->library, "ompi_mpi_errors_return", &handler)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--parallel data: %s lacks ompi_mpi_errors_return", LIBRARY);
    }
    return check(m, m->set_errhandler(m->world, handler), "set up", err);
}

/* This rank's place among those of its host. */
static flim_status find_place(mpi_ranks *m, flim_error *err)
{
    MPI_Comm host;
    MPI_Info none;
    if (!flim_dl_find(m->library, "ompi_mpi_info_null", &none)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--parallel data: %s lacks ompi_mpi_info_null", LIBRARY);
    }
    FLIM_TRY(check(m, m->comm_rank(m->world, &m->base.rank), "set up", err));
    FLIM_TRY(check(m, m->comm_size(m->world, &m->base.size), "set up", err));
    FLIM_TRY(check(m, m->comm_split_type(m->world, MPI_COMM_TYPE_SHARED, m->base.rank, none, &host), "set up", err));
    FLIM_TRY(check(m, m->comm_rank(host, &m->base.local_rank), "set up", err));
    FLIM_TRY(check(m, m->comm_size(host, &m->base.local_size), "set up", err));
    return check(m, m->comm_free(&host), "set up", err);
}

flim_status flim_mpi_open(flim_ranks **out, flim_error *err)
{
    static const flim_ranks_ops ops = {exchange, gather, broadcast, end_all, close_ranks};
    flim_status status = FLIM_OK;
    int provided = 0;
    mpi_ranks *m = flim_alloc(1, sizeof *m, err);
    if (!m) {
        return FLIM_ERROR_MEMORY;
    }
    m->base = (flim_ranks){.ops = &ops, .size = 1, .local_size = 1};
    (void)gethostname(m->base.host, sizeof m->base.host - 1);
    m->library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL); /* its plug-ins look for its symbols */
    if (!m->library) {
        const char *why = dlerror();
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "--parallel data: Open MPI could not be loaded: %s",
                                why ? why : LIBRARY " was not found"));
    }
    FLIM_TRY_DONE(find_functions(m, err));
    FLIM_TRY_DONE(check(m, m->init(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread", err));
    FLIM_TRY_DONE(return_errors(m, err));
    FLIM_TRY_DONE(find_place(m, err));
    name_library(m);
    *out = &m->base;
done:
    if (status != FLIM_OK) {
        flim_free(m);
    }
    return status;
}
#else
flim_status flim_mpi_open(flim_ranks **out, flim_error *err)
{
    *out = NULL;
    return flim_fail(
        err, FLIM_ERROR_USAGE,
        "--parallel data: this build cannot join processes: install Open MPI (Debian and Ubuntu: apt-get install "
        "libopenmpi-dev openmpi-bin), then run cmake and build again");
}
#endif

bool flim_mpi_is_launched(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    return size || getenv("PMIX_RANK");
}
