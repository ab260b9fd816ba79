/* The first look at a file in a child process: signals while it lasts, a look that hangs, a parent that is killed, a crash. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "data/h5_files.h"

enum { N = 4, T = 8, H = 3, W = 3, VOXELS = T * H * W };

/* What the child does at its first reading; the C library's pread stands behind. */
typedef enum fault { NOTHING, HANG, GET_SIGNALS, CRASH } fault;
static fault in_child;
static pid_t parent;
static int tell = -1; /* the child writes its number here before it hangs */
static volatile int stop;

static void act(void)
{
    static const int requests[] = {SIGTERM, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGQUIT, SIGPIPE};
    const fault now = in_child;
    if (getpid() == parent || now == NOTHING) {
        return;
    }
    in_child = NOTHING;
    if (now == HANG) {
        const pid_t self = getpid();
        if (tell >= 0 && write(tell, &self, sizeof self) != (ssize_t)sizeof self) {
            _exit(99);
        }
        for (;;) {
            pause();
        }
    }
    for (size_t i = 0; now == GET_SIGNALS && i < sizeof requests / sizeof requests[0]; i++) {
        raise(requests[i]);
    }
    if (now == CRASH) {
        raise(SIGSEGV);
    }
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    }
    act();
    return real(fd, to, bytes, offset);
}

static void write_file(char path[256])
{
    static int64_t counts[N * VOXELS];
    const int64_t label[N] = {0, 1, 0, 1};
    const hsize_t shape[4] = {N, T, H, W};
    snprintf(path, 256, "%s", scratch_path("probe.h5"));
    hid_t file = h5_create(path);
    h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape, h5_contiguous, counts);
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
    H5Fclose(file);
}

static flim_status open_with(fault what, const volatile int *stop_flag, flim_error *err)
{
    char path[256];
    flim_dataset *d = NULL;
    const char *const paths[] = {path};
    write_file(path);
    in_child = what;
    parent = getpid();
    const flim_status status = flim_dataset_open(paths, 1, &(flim_dataset_options){.stop = stop_flag}, &d, err);
    flim_dataset_close(d);
    in_child = NOTHING;
    return status;
}

static void on_signal(int number)
{
    stop = number;
}

/* Sends itself SIGNAL in a moment. */
static void signal_soon(int number)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(number, &action, NULL);
    if (fork() == 0) {
        usleep(100000);
        kill(getppid(), number);
        _exit(0);
    }
}

static void a_look_that_hangs_hears_signals(void **state)
{
    (void)state;
    static const int numbers[] = {SIGTERM, SIGHUP, SIGINT, SIGUSR1};
    for (size_t i = 0; i < 4; i++) {
        flim_error err = {0};
        stop = 0;
        const double begun = flim_seconds();
        signal_soon(numbers[i]);
        assert_int_equal(open_with(HANG, &stop, &err), FLIM_INTERRUPTED);
        assert_int_equal(stop, numbers[i]);
        assert_true(flim_seconds() - begun < 10);
        wait(NULL); /* the sender */
        assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD); /* no child is left */
        signal(numbers[i], SIG_DFL);
    }
}

/* A signal to the process group reaches the child as well: the parent answers for both. */
static void the_child_leaves_signals_to_its_parent(void **state)
{
    (void)state;
    flim_error err = {0};
    for (int ignored = 0; ignored < 2; ignored++) {
        signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL); /* as under nohup */
        if (open_with(GET_SIGNALS, NULL, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
    }
    signal(SIGHUP, SIG_DFL);
}

static void a_crash_is_the_files(void **state)
{
    (void)state;
    for (int handled = 0; handled < 2; handled++) {
        flim_error err = {0};
        signal(SIGSEGV, handled ? on_signal : SIG_DFL);
        assert_int_equal(open_with(CRASH, NULL, &err), FLIM_ERROR_DATA);
        assert_non_null(strstr(err.text, "crashed"));
        signal(SIGSEGV, SIG_DFL);
    }
}

/* Gone, or waiting for whoever adopted it to notice. */
static bool is_gone(pid_t process)
{
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) {
        state = '?';
    }
    if (f) {
        fclose(f);
    }
    return !f || state == 'Z' || state == 'X';
}

static void the_child_goes_with_its_parent(void **state)
{
    (void)state;
    int ends[2];
    pid_t child = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t opener = fork();
    if (opener == 0) {
        flim_error err = {0};
        tell = ends[1];
        open_with(HANG, NULL, &err);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    assert_false(is_gone(child));
    kill(opener, SIGKILL);
    waitpid(opener, NULL, 0);
    const double begun = flim_seconds();
    while (!is_gone(child) && flim_seconds() - begun < 10) {
        usleep(10000);
    }
    assert_true(is_gone(child));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_that_hangs_hears_signals),
        cmocka_unit_test(the_child_leaves_signals_to_its_parent),
        cmocka_unit_test(a_crash_is_the_files),
        cmocka_unit_test(the_child_goes_with_its_parent),
    };
    parent = getpid();
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
