/* HDF5 files that flim_import reads get a first look in a child process: one on which the library crashes, or never comes to an end,
 * is refused, and a stop is heard meanwhile. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>

#include "core/clock.h"
#include "data/h5_files.h"
#include "import/field_file.h"

enum { T = 16, H = 3, W = 2 };

/* What the child does at its first reading; the C library's pread stands behind. */
typedef enum fault { NOTHING, LOOP, CRASH, ASK_FOR_MEMORY } fault;
static fault in_child;
static pid_t parent;
static volatile int stop;

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    }
    if (getpid() != parent && in_child == CRASH) {
        raise(SIGSEGV);
    }
    if (getpid() != parent && in_child == ASK_FOR_MEMORY && !malloc((size_t)1 << 40)) {
        abort();
    }
    while (getpid() != parent && in_child == LOOP) {
        usleep(1000);
    }
    return real(fd, to, bytes, offset);
}

static flim_status read_with(fault what, bool trusted, flim_error *err)
{
    static int64_t counts[T * H * W];
    const hsize_t shape[3] = {H, W, T};
    char path[256];
    uint64_t photons = 0;
    flim_field_file *file = NULL;
    for (int i = 0; i < T * H * W; i++) {
        counts[i] = i % 7;
    }
    snprintf(path, sizeof path, "%s", scratch_path("look.h5"));
    hid_t h5 = h5_create(path);
    h5_put(h5, "decays", H5T_STD_U16LE, H5T_NATIVE_INT64, 3, shape, h5_contiguous, counts);
    H5Fclose(h5);
    in_child = what;
    parent = getpid();
    *err = (flim_error){0};
    const flim_field_options options = {.trusted = trusted, .stop = &stop};
    flim_status status = flim_field_open(path, &options, &file, err);
    in_child = NOTHING;
    if (status == FLIM_OK) {
        flim_counts c;
        status = flim_field_read(file, 0, &c, err);
        assert_true(status == FLIM_OK && c.y == H && c.x == W && c.t == T && c.bytes == 2);
        for (int i = 0; i < T * H * W; i++) {
            photons += ((const uint16_t *)c.data)[i];
        }
        assert_int_equal(photons, 283); /* of 13 times 0..6, and 0 to 4 */
        flim_counts_free(&c);
        flim_field_close(file);
    }
    return status;
}

static void a_good_file_is_read(void **state)
{
    (void)state;
    flim_error err;
    for (int trusted = 0; trusted < 2; trusted++) {
        if (read_with(NOTHING, trusted, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
    }
}

static void a_crash_is_the_files(void **state)
{
    (void)state;
    flim_error err;
    for (fault what = CRASH; what <= ASK_FOR_MEMORY; what++) {
        assert_int_equal(read_with(what, false, &err), FLIM_ERROR_DATA);
        if (!strstr(err.text, "look.h5: the file is damaged: HDF5 ") || !strstr(err.text, "crashed")) {
            fail_msg("'%s'", err.text);
        }
    }
    assert_int_equal(read_with(CRASH, true, &err), FLIM_OK); /* no child at all */
}

static void on_alarm(int number)
{
    stop = number;
}

static void a_look_that_lasts_hears_a_stop(void **state)
{
    (void)state;
    flim_error err;
    const double began = flim_seconds();
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    stop = 0;
    alarm(1);
    assert_int_equal(read_with(LOOP, false, &err), FLIM_INTERRUPTED);
    assert_true(flim_seconds() - began < 30);
    stop = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_read),
        cmocka_unit_test(a_crash_is_the_files),
        cmocka_unit_test(a_look_that_lasts_hears_a_stop),
    };
    parent = getpid();
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
