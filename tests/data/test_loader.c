/* The loader: every cell once, in order, with its own label and group, whatever the threads do; errors, cancel and reuse. */
#include "data/h5_files.h"

#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "backend/backend.h"
#include "flim/loader.h"
#ifdef HDF5_GUARD
#include "guard/hdf5_guard_tests.h"
#endif

enum { N = 400, T = 8, H = 5, W = 3, PIXELS = H * W, VOXELS = T * PIXELS };

static int64_t place_of(int64_t cell)
{
    return (int64_t)((uint64_t)cell * 0x9e3779b97f4a7c15u >> 33) % VOXELS;
}

/* Cell i carries i + 1 photons in one voxel, label i mod 2, group i mod 7.  bad >= 0: that cell holds -1 there instead. */
static void write_tagged(const char *path, hid_t type, h5_layout layout, int64_t bad)
{
    static int64_t counts[N * VOXELS], label[N], group[N];
    const hsize_t shape[4] = {N, T, H, W};
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < N; i++) {
        counts[i * VOXELS + place_of(i)] = i == bad ? -1 : i + 1;
        label[i] = i % 2;
        group[i] = i % 7;
    }
    hid_t file = h5_create(path);
    h5_put(file, "counts", type, H5T_NATIVE_INT64, 4, shape, layout, counts);
    h5_put_ints(file, "label", H5T_STD_I64LE, N, label);
    h5_put_ints(file, "group", H5T_STD_I32LE, N, group);
    H5Fclose(file);
}

static flim_loader *make(flim_dataset *d, const flim_loader_options *options)
{
    flim_loader *loader;
    flim_error err = {0};
    if (flim_loader_create(d, options, &loader, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    return loader;
}

static void shuffled(flim_draw *draws, uint64_t seed)
{
    int64_t order[N];
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed}, FLIM_RANDOM_SAMPLER);
    for (int64_t i = 0; i < N; i++) {
        order[i] = i;
    }
    flim_random_shuffle(&random, order, N);
    for (int64_t i = 0; i < N; i++) {
        draws[i] = (flim_draw){(uint32_t)order[i], (uint32_t)(order[i] % 3), 0.5f + (float)order[i]};
    }
}

/* What stands in entry `at` of a batch has to be what its draw says. */
static void check_entry(const flim_dataset *d, const flim_batch *batch, int64_t at, const flim_draw *draw,
                        const flim_phase *phase)
{
    const flim_dataset_info *info = flim_dataset_get_info(d);
    const float *signal = batch->signal + at * VOXELS;
    const uint8_t *mask = batch->mask + at * PIXELS;
    int64_t cell = draw->cell, place = place_of(cell);
    float want;
    flim_signal_from_counts(&(float){(float)(cell + 1)}, &want, 1);
    for (int64_t v = 0; v < VOXELS; v++) {
        if (signal[v] != (v == place ? want : 0.0f)) {
            fail_msg("cell %d voxel %d: %g", (int)cell, (int)v, signal[v]);
        }
    }
    for (int64_t p = 0; p < PIXELS; p++) {
        assert_int_equal(mask[p], p == place % PIXELS);
    }
    assert_int_equal(batch->label[at], cell % 2);
    assert_int_equal(info->group[cell], cell % 7);
    assert_true(batch->weight[at] == draw->weight);
    const flim_cell_id want_id = {phase->seed, phase->fold, phase->epoch, draw->cell, draw->repeat};
    assert_memory_equal(&batch->id[at], &want_id, sizeof want_id);
}

static void run_epoch(flim_dataset *d, flim_loader *loader, const flim_draw *draws, int64_t batch_size, uint32_t epoch)
{
    flim_error err = {0};
    const flim_phase phase = {.draws = draws, .n_draws = N, .batch = batch_size, .seed = 42, .fold = 3, .epoch = epoch};
    int64_t seen = 0;
    assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_OK);
    for (;;) {
        const flim_batch *batch;
        if (flim_loader_next(loader, &batch, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
        if (!batch) {
            break;
        }
        assert_int_equal(batch->n, seen + batch_size <= N ? batch_size : N - seen);
        for (int64_t i = 0; i < batch->n; i++) {
            check_entry(d, batch, i, &draws[seen + i], &phase);
        }
        seen += batch->n;
        flim_loader_release(loader, batch);
    }
    flim_loader_stats stats;
    flim_loader_get_stats(loader, &stats);
    assert_int_equal(seen, N);
    assert_int_equal(stats.cells, N);
    assert_true(stats.wait_seconds >= 0);
}

static int threads_of_this_process(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        count += entry->d_name[0] != '.';
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

/* A thread that was joined may stand in /proc for a moment yet. */
static bool threads_become(int count)
{
    for (int i = 0; i < 500 && threads_of_this_process() != count; i++) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return threads_of_this_process() == count;
}

static void twenty_shuffled_epochs_with_any_number_of_threads(void **state)
{
    (void)state;
    static const hsize_t one[4] = {1, T, H, W}, many[4] = {7, T, H, W};
    const struct {
        hid_t type;
        h5_layout layout;
    } files[] = {{H5T_STD_U16LE, {one, 4, 1, 0}}, /* own inflate */
                 {H5T_STD_I32BE, {many, 4, 1, 0}}, /* through the library, under the lock */
                 {H5T_IEEE_F32LE, h5_contiguous}};
    static flim_draw draws[N];
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        const char *path = scratch_path("tagged.h5");
        write_tagged(path, files[f].type, files[f].layout, -1);
        /* kept in memory, the second kind of file is filled by several threads at once */
        flim_dataset *d = open_good(path, &(flim_dataset_options){.need_labels = true,
                                                                  .need_groups = true,
                                                                  .cache = f % 2 ? FLIM_CACHE_HOST : FLIM_CACHE_NONE});
        for (int workers = 1; workers <= 8; workers += workers == 1 ? 1 : 6) {
            flim_loader *loader = make(d, &(flim_loader_options){.workers = workers, .prefetch = 4, .batch = 64});
            int running = threads_of_this_process();
            flim_loader_stats first, last;
            flim_loader_get_stats(loader, &first);
            for (uint32_t epoch = 0; epoch < 20; epoch++) {
                shuffled(draws, epoch);
                run_epoch(d, loader, draws, epoch % 3 == 0 ? 64 : epoch % 3 == 1 ? 17 : 1, epoch);
                assert_int_equal(threads_of_this_process(), running);
            }
            flim_loader_get_stats(loader, &last);
            assert_int_equal(last.buffer_bytes, first.buffer_bytes);
            assert_true(last.buffer_bytes >= 5 * 64 * (VOXELS * 4 + PIXELS));
            flim_loader_destroy(loader);
            assert_true(threads_become(running - workers));
        }
        flim_dataset_close(d);
    }
}

/* A chunk index too large to be walked at open: the raw chunks come through the library. */
static void many_cells_come_through_the_library_index(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    static int64_t counts[MANY * VOXELS];
    static flim_draw draws[MANY];
    const hsize_t shape[4] = {MANY, T, H, W}, one[4] = {1, T, H, W};
    for (int64_t i = 0; i < MANY; i++) {
        counts[i * VOXELS + place_of(i)] = i + 1;
        draws[i] = (flim_draw){(uint32_t)(i * 7 % MANY), 0, 1.0f};
    }
    const char *path = scratch_path("many.h5");
    hid_t file = h5_create(path);
    h5_put(file, "counts", H5T_STD_U16BE, H5T_NATIVE_INT64, 4, shape, (h5_layout){one, 1, 1, 0}, counts);
    H5Fclose(file);
    flim_dataset *d = open_good(path, NULL);
    flim_loader *loader = make(d, &(flim_loader_options){.workers = 4, .prefetch = 2, .batch = 100});
    assert_int_equal(
        flim_loader_begin(
            loader, &(flim_phase){.draws = draws, .n_draws = MANY, .batch = 100, .seed = 1, .fold = 0, .epoch = 0}, NULL),
        FLIM_OK);
    for (int64_t seen = 0; seen < MANY;) {
        const flim_batch *batch;
        assert_int_equal(flim_loader_next(loader, &batch, NULL), FLIM_OK);
        assert_non_null(batch);
        for (int64_t i = 0; i < batch->n; i++, seen++) {
            float want;
            flim_signal_from_counts(&(float){(float)(draws[seen].cell + 1)}, &want, 1);
            assert_true(batch->signal[i * VOXELS + place_of(draws[seen].cell)] == want);
        }
        flim_loader_release(loader, batch);
    }
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

static void an_error_ends_the_phase_at_its_batch(void **state)
{
    (void)state;
    static const hsize_t one[4] = {1, T, H, W};
    const char *path = scratch_path("bad.h5");
    static flim_draw draws[N], good[N];
    write_tagged(path, H5T_STD_I16LE, (h5_layout){one, 4, 1, 0}, 123);
    flim_dataset *d = open_good(path, NULL);
    for (int workers = 1; workers <= 8; workers *= 2) {
        flim_loader *loader = make(d, &(flim_loader_options){.workers = workers, .prefetch = 3, .batch = 16});
        for (int round = 0; round < 10; round++) {
            shuffled(draws, (uint64_t)round);
            int64_t at = 0, delivered = 0, kept = 0;
            for (int64_t i = 0; i < N; i++) {
                if (draws[i].cell == 123) {
                    at = i;
                } else {
                    good[kept++] = draws[i];
                }
            }
            const flim_phase phase = {.draws = draws, .n_draws = N, .batch = 16, .seed = 7, .fold = 0, .epoch = 0};
            flim_error err = {0};
            const flim_batch *batch;
            flim_status status;
            assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_OK);
            while ((status = flim_loader_next(loader, &batch, &err)) == FLIM_OK) {
                assert_non_null(batch);
                for (int64_t i = 0; i < batch->n; i++) {
                    check_entry(d, batch, i, &draws[delivered + i], &phase);
                }
                delivered += batch->n;
                flim_loader_release(loader, batch);
            }
            assert_int_equal(status, FLIM_ERROR_DATA);
            assert_int_equal(err.status, FLIM_ERROR_DATA);
            assert_int_equal(delivered, at / 16 * 16);
            assert_non_null(strstr(err.text, "cell 123, "));
            assert_int_equal(flim_loader_next(loader, &batch, &err), FLIM_OK); /* over */
            assert_null(batch);
            /* the same pool again, without that cell */
            const flim_phase again = {.draws = good, .n_draws = kept, .batch = 16, .seed = 8, .fold = 1, .epoch = 2};
            assert_int_equal(flim_loader_begin(loader, &again, &err), FLIM_OK);
            for (int64_t seen = 0; seen < kept; seen += 16) {
                assert_int_equal(flim_loader_next(loader, &batch, &err), FLIM_OK);
                for (int64_t i = 0; i < batch->n; i++) {
                    check_entry(d, batch, i, &good[seen + i], &again);
                }
                flim_loader_release(loader, batch);
            }
        }
        flim_loader_destroy(loader);
    }
    flim_dataset_close(d);
}

static void cancel_and_destroy_at_any_time(void **state)
{
    (void)state;
    static const hsize_t one[4] = {1, T, H, W};
    const char *path = scratch_path("cancel.h5");
    static flim_draw draws[N];
    write_tagged(path, H5T_STD_U16LE, (h5_layout){one, 4, 1, 0}, -1);
    flim_dataset *d = open_good(path, NULL);
    flim_loader *loader = make(d, &(flim_loader_options){.workers = 8, .prefetch = 2, .batch = 32});
    const flim_batch *batch, *held = NULL;
    flim_loader_cancel(loader); /* nothing runs */
    assert_int_equal(flim_loader_next(loader, &batch, NULL), FLIM_OK);
    assert_null(batch);
    for (uint32_t round = 0; round < 60; round++) {
        shuffled(draws, round);
        const flim_phase phase = {
            .draws = draws, .n_draws = N, .batch = 1 + round % 32, .seed = 1, .fold = 2, .epoch = round};
        assert_int_equal(flim_loader_begin(loader, &phase, NULL), FLIM_OK);
        for (uint32_t i = 0; i < round % 7; i++) {
            assert_int_equal(flim_loader_next(loader, &batch, NULL), FLIM_OK);
            check_entry(d, batch, batch->n - 1, &draws[(int64_t)i * phase.batch + batch->n - 1], &phase);
            if (i == 0 && round % 2) {
                held = batch; /* kept over the cancel */
            } else {
                flim_loader_release(loader, batch);
            }
        }
        if (round % 3) { /* else: begin cancels by itself */
            flim_loader_cancel(loader);
            assert_int_equal(flim_loader_next(loader, &batch, NULL), FLIM_OK);
            assert_null(batch);
        }
        if (held) {
            check_entry(d, held, 0, &draws[0], &phase);
            flim_loader_release(loader, held);
            held = NULL;
        }
    }
    run_epoch(d, loader, draws, 32, 0);
    flim_loader_destroy(loader);
    for (int i = 0; i < 20; i++) { /* destroy in the middle */
        loader = make(d, &(flim_loader_options){.workers = 1 + i % 8, .prefetch = 1 + i % 3, .batch = 8});
        assert_int_equal(
            flim_loader_begin(
                loader, &(flim_phase){.draws = draws, .n_draws = N, .batch = 8, .seed = 1, .fold = 0, .epoch = 0}, NULL),
            FLIM_OK);
        for (int j = 0; j < i % 3; j++) {
            assert_int_equal(flim_loader_next(loader, &batch, NULL), FLIM_OK);
            flim_loader_release(loader, batch);
        }
        flim_loader_destroy(loader);
    }
    flim_loader_destroy(NULL);
    flim_dataset_close(d);
}

static void wrong_use_is_refused(void **state)
{
    (void)state;
    const char *path = scratch_path("use.h5");
    static flim_draw draws[N];
    write_tagged(path, H5T_STD_U16LE, h5_contiguous, -1);
    flim_dataset *d = open_good(path, NULL);
    flim_loader *loader = NULL;
    flim_error err = {0};
    assert_int_equal(flim_loader_create(d, &(flim_loader_options){.workers = 0, .prefetch = 1, .batch = 1}, &loader, &err),
                     FLIM_ERROR_USAGE);
    assert_null(loader);
    assert_int_equal(
        flim_loader_create(d, &(flim_loader_options){.workers = 1, .prefetch = 1, .batch = INT64_MAX / 2}, &loader, &err),
        FLIM_ERROR_MEMORY);
    assert_null(loader);
    loader = make(d, &(flim_loader_options){.workers = 2, .prefetch = 1, .batch = 8});
    shuffled(draws, 1);
    assert_int_equal(
        flim_loader_begin(loader, &(flim_phase){.draws = draws, .n_draws = N, .batch = 9, .seed = 1, .fold = 0, .epoch = 0},
                          &err),
        FLIM_ERROR_USAGE);
    draws[5].cell = N;
    assert_int_equal(
        flim_loader_begin(loader, &(flim_phase){.draws = draws, .n_draws = N, .batch = 8, .seed = 1, .fold = 0, .epoch = 0},
                          &err),
        FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "draw 5"));
    draws[5].cell = 0;
    const flim_batch *batch[3];
    assert_int_equal(
        flim_loader_begin(loader, &(flim_phase){.draws = NULL, .n_draws = 0, .batch = 8, .seed = 1, .fold = 0, .epoch = 0},
                          &err),
        FLIM_OK);
    assert_int_equal(flim_loader_next(loader, &batch[0], &err), FLIM_OK);
    assert_null(batch[0]);
    assert_int_equal(
        flim_loader_begin(loader, &(flim_phase){.draws = draws, .n_draws = N, .batch = 8, .seed = 1, .fold = 0, .epoch = 0},
                          &err),
        FLIM_OK);
    assert_int_equal(flim_loader_next(loader, &batch[0], &err), FLIM_OK);
    assert_int_equal(flim_loader_next(loader, &batch[1], &err), FLIM_OK);
    assert_int_equal(flim_loader_next(loader, &batch[2], &err), FLIM_ERROR_USAGE); /* would wait for ever */
    assert_null(batch[2]);
    flim_loader_release(loader, batch[1]); /* in any order */
    assert_int_equal(flim_loader_next(loader, &batch[2], &err), FLIM_OK);
    assert_int_equal(batch[2]->id[0].cell, draws[16].cell);
    assert_int_equal(batch[0]->id[7].cell, draws[7].cell);
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

/* One slow thread delays, but changes nothing and blocks nobody for ever: every 50th read of a file takes 20 ms. */
static atomic_int slow_reads; /* counts down; 0 = reads are as they are */

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    if (atomic_load(&slow_reads) > 0 && atomic_fetch_sub(&slow_reads, 1) % 50 == 0) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    return (ssize_t)syscall(SYS_pread64, fd, to, bytes, offset);
}

static void stragglers_do_not_change_the_order(void **state)
{
    (void)state;
    const char *path = scratch_path("slow.h5");
    static flim_draw draws[N];
    write_tagged(path, H5T_STD_U16LE, h5_contiguous, -1);
    flim_dataset *d = open_good(path, NULL);
    flim_loader *loader = make(d, &(flim_loader_options){.workers = 8, .prefetch = 4, .batch = 16});
    shuffled(draws, 11);
    atomic_store(&slow_reads, N);
    run_epoch(d, loader, draws, 16, 0);
    assert_true(atomic_load(&slow_reads) <= 0); /* it was our pread */
    atomic_store(&slow_reads, 0);
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

/* A device whose memory cannot be pinned, as under a small `ulimit -l`. */
static flim_status no_pinning(flim_device *device, size_t bytes, void **out, bool *pinned, flim_error *err)
{
    (void)device, (void)err;
    *pinned = false;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static void free_buffers(flim_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static void buffers_that_cannot_be_pinned_are_noted(void **state)
{
    (void)state;
    static const flim_device_ops ops = {.host_alloc = no_pinning, .host_free = free_buffers};
    flim_device device = {.ops = &ops, .info = {.kind = "cuda", .own_memory = true}};
    static flim_draw draws[N];
    log_text log = {0};
    flim_log sink = {log_line, &log};
    const char *path = scratch_path("pin.h5");
    write_tagged(path, H5T_STD_U16LE, h5_contiguous, -1);
    flim_dataset *d = open_good(path, NULL);
    flim_loader *loader =
        make(d, &(flim_loader_options){.workers = 2, .prefetch = 3, .batch = 16, .device = &device, .log = &sink});
    flim_loader_stats stats;
    flim_loader_get_stats(loader, &stats);
    assert_false(stats.pinned);
    assert_non_null(strstr(log.text, "could not be pinned"));
    shuffled(draws, 5);
    run_epoch(d, loader, draws, 16, 0);
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

static long resident_kilobytes(void)
{
    long total = 0, resident = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    assert_non_null(stream);
    assert_int_equal(fscanf(stream, "%ld %ld", &total, &resident), 2);
    fclose(stream);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* 5 folds of 50 epochs, each with a training and a validation phase of its own size: threads and memory are those of the first. */
static void memory_and_threads_are_flat_over_folds(void **state)
{
    (void)state;
    static flim_draw draws[N];
    const char *path = scratch_path("flat.h5");
    static const hsize_t many[4] = {7, T, H, W};
    write_tagged(path, H5T_STD_U16LE, (h5_layout){many, 4, 1, 0}, -1);
    flim_dataset *d = open_good(path, NULL);
    flim_loader *loader = make(d, &(flim_loader_options){.workers = 8, .prefetch = 4, .batch = 64});
    const int threads = threads_of_this_process();
    long first = 0;
    for (int fold = 0; fold < 5; fold++) {
        for (int epoch = 0; epoch < 50; epoch++) {
            for (int part = 0; part < 2; part++) {
                const flim_phase phase = {.draws = draws,
                                          .n_draws = part ? 40 + fold : N - 80 - fold,
                                          .batch = 64,
                                          .seed = 1,
                                          .fold = (uint32_t)fold,
                                          .epoch = (uint32_t)epoch};
                const flim_batch *batch;
                shuffled(draws, (uint64_t)(fold * 100 + epoch));
                assert_int_equal(flim_loader_begin(loader, &phase, NULL), FLIM_OK);
                while (flim_loader_next(loader, &batch, NULL) == FLIM_OK && batch) {
                    flim_loader_release(loader, batch);
                }
            }
        }
        assert_true(threads_become(threads));
        first = fold == 0 ? resident_kilobytes() : first;
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* these keep what was freed */
    const long last = resident_kilobytes();
    if (last > first + 1024) {
        fail_msg("%ld KiB after the first fold, %ld after the fifth", first, last);
    }
#endif
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef HDF5_GUARD
        cmocka_unit_test(the_guard_sees_threads_that_meet),
#endif
        cmocka_unit_test(twenty_shuffled_epochs_with_any_number_of_threads),
        cmocka_unit_test(many_cells_come_through_the_library_index),
        cmocka_unit_test(an_error_ends_the_phase_at_its_batch),
        cmocka_unit_test(cancel_and_destroy_at_any_time),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(stragglers_do_not_change_the_order),
        cmocka_unit_test(buffers_that_cannot_be_pinned_are_noted),
        cmocka_unit_test(memory_and_threads_are_flat_over_folds),
#ifdef HDF5_GUARD
        cmocka_unit_test(no_two_threads_were_inside_libhdf5),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
