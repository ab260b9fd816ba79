/* The writer of files: whole or absent, one of two writers wins, links and special files, mode kept, stale temporary files, and
 * what may be overwritten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/temporary_files.h"

static char folder[64];

static const char *in(const char *name)
{
    static char path[8][128];
    static int next;
    char *out = path[next++ % 8];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static void put(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void holds(const char *path, const char *text)
{
    char *bytes;
    size_t count;
    flim_error err = {0};
    if (flim_file_read(path, 1 << 24, &bytes, &count, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(bytes, text);
    flim_free(bytes);
}

/* Writes `text` with a writer of a kind. */
static flim_status write_kind(const char *path, const char *text, flim_file_kind kind, bool seeks, flim_error *err)
{
    flim_file_writer writer;
    const flim_status status = flim_file_begin_kind(&writer, path, kind, seeks, NULL, err);
    if (status != FLIM_OK) {
        return status;
    }
    fputs(text, writer.stream);
    return flim_file_commit(&writer, err);
}

static void one_of_two_writers_wins(void **state)
{
    (void)state;
    enum { BYTES = 300000, TRIALS = 20 };
    static char text[BYTES];
    const char *path = in("both");
    for (int trial = 0; trial < TRIALS; trial++) {
        pid_t child[2];
        for (int c = 0; c < 2; c++) {
            child[c] = fork();
            if (child[c] == 0) {
                flim_file_writer writer;
                memset(text, 'a' + c, sizeof text);
                int code = flim_file_begin(&writer, path, NULL) != FLIM_OK;
                for (int i = 0; !code && i < 10; i++) {
                    fwrite(text, 1, sizeof text / 10, writer.stream);
                    fflush(writer.stream);
                }
                _exit(code || flim_file_commit(&writer, NULL) != FLIM_OK);
            }
        }
        for (int c = 0; c < 2; c++) {
            int code;
            assert_int_equal(waitpid(child[c], &code, 0), child[c]);
            assert_int_equal(code, 0);
        }
        char *bytes;
        size_t count;
        assert_int_equal(flim_file_read(path, 1 << 24, &bytes, &count, NULL), FLIM_OK);
        assert_int_equal(count, BYTES);
        for (size_t i = 0; i < count; i++) {
            if (bytes[i] != bytes[0]) {
                fail_msg("trial %d: byte %zu is the other writer's", trial, i);
            }
        }
        flim_free(bytes);
        assert_int_equal(temporary_files_of(path), 0);
    }
}

static void links_are_followed_where_a_user_named_them(void **state)
{
    (void)state;
    flim_error err = {0};
    struct stat about;
    mkdir(in("sub"), 0777);
    put(in("sub/real"), "old", 3);
    assert_int_equal(symlink("sub/middle", in("link")), 0);
    assert_int_equal(symlink("real", in("sub/middle")), 0);
    assert_int_equal(write_kind(in("link"), "new", FLIM_FILE_NAMED, false, &err), FLIM_OK);
    holds(in("sub/real"), "new");
    assert_true(lstat(in("link"), &about) == 0 && S_ISLNK(about.st_mode));
    assert_true(lstat(in("sub/middle"), &about) == 0 && S_ISLNK(about.st_mode));
    unlink(in("sub/real")); /* a link that leads nowhere */
    assert_int_equal(write_kind(in("link"), "again", FLIM_FILE_NAMED, true, &err), FLIM_OK);
    holds(in("sub/real"), "again");
    assert_int_equal(symlink("loop", in("loop")), 0);
    assert_int_equal(write_kind(in("loop"), "x", FLIM_FILE_NAMED, false, &err), FLIM_ERROR_WRITE);
    /* A run's own file is no link's target: what a link leads to stays. */
    assert_int_equal(write_kind(in("link"), "own", FLIM_FILE_OWN, false, &err), FLIM_OK);
    holds(in("sub/real"), "again");
    assert_true(lstat(in("link"), &about) == 0 && S_ISREG(about.st_mode));
}

static void mode_and_group_stay(void **state)
{
    (void)state;
    static const mode_t modes[] = {0600, 0640, 0664, 0755};
    const gid_t group = getuid() == 0 ? 54321 : getgid();
    const char *path = in("mode");
    struct stat about;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        put(path, "old", 3);
        assert_int_equal(chown(path, (uid_t)-1, group), 0);
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(write_kind(path, "new", i % 2 ? FLIM_FILE_OWN : FLIM_FILE_NAMED, false, NULL), FLIM_OK);
        assert_int_equal(stat(path, &about), 0);
        assert_int_equal(about.st_mode & 07777, modes[i]);
        assert_int_equal(about.st_gid, group);
    }
    assert_int_equal(chmod(path, 0444), 0); /* root could write it all the same */
    flim_error err = {0};
    assert_int_equal(write_kind(path, "no", FLIM_FILE_NAMED, false, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "read-only"));
    holds(path, "new");
    unlink(path);
    const mode_t mask = umask(027);
    assert_int_equal(write_kind(path, "new", FLIM_FILE_OWN, false, NULL), FLIM_OK);
    umask(mask);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0640);
}

/* Reads a pipe to its end in a child, which leaves with the number of bytes. */
static pid_t reader_of(const char *path)
{
    const pid_t child = fork();
    if (child == 0) {
        char bytes[64];
        const int fd = open(path, O_RDONLY);
        int total = 0;
        for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;) {
            total += (int)got;
        }
        _exit(total);
    }
    return child;
}

static void special_files_are_written_into(void **state)
{
    (void)state;
    struct stat about;
    flim_error err = {0};
    const char *pipe_path = in("pipe"), *device = in("null");
    assert_int_equal(mkfifo(pipe_path, 0666), 0);
    for (int seeks = 0; seeks < 2; seeks++) {
        const pid_t child = reader_of(pipe_path);
        int code;
        assert_int_equal(write_kind(pipe_path, "seven b", FLIM_FILE_NAMED, seeks, &err), FLIM_OK);
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_int_equal(WEXITSTATUS(code), 7);
        assert_true(lstat(pipe_path, &about) == 0 && S_ISFIFO(about.st_mode));
    }
    const volatile int stop = 1; /* nobody reads */
    flim_file_writer writer;
    assert_int_equal(flim_file_begin_kind(&writer, pipe_path, FLIM_FILE_NAMED, false, &stop, &err), FLIM_INTERRUPTED);
    /* No writer of a run's own files waits for a pipe or replaces it, no reader waits for one. */
    assert_int_equal(write_kind(pipe_path, "x", FLIM_FILE_OWN, false, &err), FLIM_ERROR_WRITE);
    char *bytes;
    size_t count;
    int fd;
    assert_int_equal(flim_file_read(pipe_path, 100, &bytes, &count, &err), FLIM_ERROR_DATA);
    assert_int_equal(flim_file_open_own(pipe_path, O_RDWR, &fd, &err), FLIM_ERROR_WRITE);
    assert_int_equal(flim_file_open_own(pipe_path, O_WRONLY | O_APPEND, &fd, &err), FLIM_ERROR_WRITE);
    if (mknod(device, S_IFCHR | 0666, makedev(1, 3)) != 0) { /* a null device of our own, never the machine's */
        print_message("left out: mknod: %s\n", strerror(errno));
        return;
    }
    for (int seeks = 0; seeks < 2; seeks++) {
        assert_int_equal(write_kind(device, "x", FLIM_FILE_NAMED, seeks, &err), FLIM_OK);
        assert_int_equal(write_kind(device, "x", FLIM_FILE_NEW, seeks, &err), FLIM_OK);
    }
    assert_int_equal(write_kind(device, "x", FLIM_FILE_OWN, false, &err), FLIM_ERROR_WRITE);
    assert_true(lstat(device, &about) == 0 && S_ISCHR(about.st_mode));
}

static void failures_leave_the_old_file_and_nothing_else(void **state)
{
    (void)state;
    static char much[65536];
    const char *path = in("small");
    flim_error err = {0};
    struct rlimit before, limit;
    put(path, "old", 3);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    const flim_status status = flim_file_write(path, much, sizeof much, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "File too large"));
    holds(path, "old");
    assert_int_equal(temporary_files_of(path), 0);
    assert_int_equal(flim_file_write(in("none/x"), "x", 1, &err), FLIM_ERROR_WRITE);
    assert_int_equal(flim_file_write(folder, "x", 1, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "it is a folder"));
    assert_int_equal(flim_file_write("", "x", 1, &err), FLIM_ERROR_WRITE);
    char longest[300];
    memset(longest, 'n', sizeof longest);
    longest[255] = '\0'; /* the longest name that file systems take */
    assert_int_equal(flim_file_write(in("."), "x", 1, &err), FLIM_ERROR_WRITE);
    char path_255[400];
    snprintf(path_255, sizeof path_255, "%s/%s", folder, longest);
    assert_int_equal(flim_file_write(path_255, "x", 1, &err), FLIM_OK);
    holds(path_255, "x");
}

static void only_stale_temporary_files_go(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool old, locked, stays;
    } files[] = {{".s.0123456789abcdef.tmp", true, false, false},
                 {".s.fedcba9876543210.tmp", true, true, true}, /* its writer lives */
                 {".s.00000000000000aa.tmp", false, false, true}, /* its writer may be about to lock it */
                 {".s.0123456789abcdeg.tmp", true, false, true},
                 {".s.0123456789abcde.tmp", true, false, true},
                 {".other.0123456789abcdef.tmp", true, false, true},
                 {"s.tmp", true, false, true},
                 {"s.0123456789abcdef.tmp", true, false, true}};
    enum { N = sizeof files / sizeof files[0] };
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    int fd[N];
    for (int i = 0; i < N; i++) {
        put(in(files[i].name), "x", 1);
        if (files[i].old) {
            assert_int_equal(utimensat(AT_FDCWD, in(files[i].name), long_ago, 0), 0);
        }
        fd[i] = open(in(files[i].name), O_RDWR);
        assert_int_equal(files[i].locked ? flock(fd[i], LOCK_SH) : 0, 0);
    }
    assert_int_equal(flim_file_write(in("s"), "new", 3, NULL), FLIM_OK);
    for (int i = 0; i < N; i++) {
        if (flim_file_exists(in(files[i].name)) != files[i].stays) {
            fail_msg("%s %s", files[i].name, files[i].stays ? "is gone" : "is still there");
        }
        unlink(in(files[i].name));
        close(fd[i]);
    }
}

static void a_new_file_replaces_nothing(void **state)
{
    (void)state;
    flim_file_writer writer;
    flim_error err = {0};
    const char *path = in("fresh");
    assert_int_equal(flim_file_begin_kind(&writer, path, FLIM_FILE_NEW, true, NULL, &err), FLIM_OK);
    fputs("mine", writer.stream);
    put(path, "theirs", 6); /* meanwhile */
    assert_int_equal(flim_file_commit(&writer, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "File exists"));
    holds(path, "theirs");
    assert_int_equal(temporary_files_of(path), 0);
    bool exists = false;
    assert_int_equal(flim_file_write_new(path, "x", 1, 0600, &exists, &err), FLIM_OK);
    assert_true(exists);
    assert_int_equal(flim_file_write_new(in("fresh2"), "x", 1, 0600, &exists, &err), FLIM_OK);
    assert_false(exists);
    struct stat about;
    assert_true(stat(in("fresh2"), &about) == 0 && (about.st_mode & 07777) == 0600);
}

static void own_files_that_stay_open_are_no_links(void **state)
{
    (void)state;
    int fd;
    flim_error err = {0};
    put(in("victim"), "keep", 4);
    assert_int_equal(symlink("victim", in(".lock")), 0);
    assert_int_equal(flim_file_open_own(in(".lock"), O_RDWR, &fd, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "it is a link"));
    assert_int_equal(flim_file_open_own(in(".lock"), O_WRONLY | O_APPEND | O_TRUNC, &fd, &err), FLIM_ERROR_WRITE);
    holds(in("victim"), "keep");
    assert_int_equal(flim_file_open_own(in("log"), O_WRONLY | O_APPEND, &fd, &err), FLIM_OK);
    close(fd);
}

/* ---- what may be overwritten */

static const char *const hdf5_places[] = {"hdf5_0", "hdf5_512", "hdf5_2048"};

static void make_files(void)
{
    static const char signature[] = "\211HDF\r\n\032\n", weights[] = "\x02\0\0\0\0\0\0\0{}";
    static const int places[] = {0, 512, 2048};
    for (int i = 0; i < 3; i++) {
        char bytes[4096] = {0};
        memcpy(bytes + places[i], signature, 8);
        put(in(hdf5_places[i]), bytes, sizeof bytes);
    }
    put(in("weights"), weights, sizeof weights - 1);
    put(in("checkpoint"), "FLIMCKPT....", 12);
    put(in("own"), "head,1\n", 7);
    put(in("foreign"), "head;1\n", 7);
    put(in("empty"), "", 0);
    put(in("input"), "head,in\n", 8);
    assert_int_equal(link(in("input"), in("hard")), 0);
    assert_int_equal(symlink("input", in("soft")), 0);
    mkdir(in("run"), 0777);
    mkdir(in("run/fold_0"), 0777);
    mkdir(in("run/fold_0/checkpoint"), 0777);
    mkdir(in("run/final"), 0777);
    put(in("run/config.yaml"), "a: 1\n", 5);
    put(in("run/resume.json"), "{}", 2);
    put(in("run/summary.csv"), "head,1\n", 7);
    put(in("run/mine.csv"), "head,1\n", 7);
    assert_int_equal(symlink("run/summary.csv", in("to_run")), 0);
    mkdir(in("no_run"), 0777);
    put(in("no_run/summary.csv"), "head,1\n", 7);
}

static void only_files_of_the_own_kind_are_overwritten(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool allowed, forced; /* without --force, with it */
        const char *says;
    } cases[] = {{"missing", true, true, ""},
                 {"empty", true, true, ""},
                 {"own", true, true, ""},
                 {"foreign", false, true, "is not a test's"},
                 {"hdf5_0", false, false, "an HDF5 file"},
                 {"hdf5_512", false, false, "an HDF5 file"},
                 {"hdf5_2048", false, false, "an HDF5 file"},
                 {"weights", false, false, "weights"},
                 {"checkpoint", false, false, "checkpoint"},
                 {"input", false, false, "this call reads"},
                 {"hard", false, false, "this call reads"},
                 {"soft", false, false, "this call reads"},
                 {"no_run/../input", false, false, "this call reads"},
                 {"run/config.yaml", false, false, "a file of a run"},
                 {"run/summary.csv", false, false, "a file of a run"},
                 {"run/baseline_decay.csv", false, false, "a file of a run"},
                 {"run/fold_0/predictions.csv", false, false, "a file of a run"},
                 {"run/final/weights.safetensors", false, false, "a file of a run"},
                 {"run/fold_0/checkpoint/state.ckpt", false, false, "a file of a run"},
                 {"to_run", false, false, "a file of a run"},
                 {"run/mine.csv", true, true, ""},
                 {"run/report.html", true, true, ""},
                 {"no_run/summary.csv", true, true, ""}};
    make_files();
    char input[128];
    snprintf(input, sizeof input, "%s", in("input"));
    const char *const inputs[] = {input, "none"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int force = 0; force < 2; force++) {
            flim_error err = {0};
            const flim_output output = {.path = in(cases[i].path),
                                        .kind = "a test's",
                                        .begins = "head,",
                                        .input = inputs,
                                        .n_inputs = 2,
                                        .force = force};
            const bool want = force ? cases[i].forced : cases[i].allowed;
            flim_file_writer writer;
            const flim_status checked = flim_output_check(&output, &err);
            const flim_status begun = flim_output_begin(&output, &writer, &err);
            flim_file_abandon(&writer);
            if (checked != begun || begun != (want ? FLIM_OK : FLIM_ERROR_USAGE) ||
                (!want && !force && !strstr(err.text, cases[i].says))) {
                fail_msg("%s, force %d: status %d before, %d then: %s", cases[i].path, force, checked, begun, err.text);
            }
            assert_int_equal(temporary_files_of(output.path), 0);
        }
    }
    flim_error err = {0};
    assert_int_equal(flim_output_check(&(flim_output){.path = in("own"), .kind = "new", .force = true}, &err),
                     FLIM_ERROR_USAGE); /* of a kind that replaces nothing */
    assert_int_equal(flim_output_check(&(flim_output){.path = "-", .kind = "new"}, &err), FLIM_OK);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/flim_test_file_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_two_writers_wins),
        cmocka_unit_test(links_are_followed_where_a_user_named_them),
        cmocka_unit_test(mode_and_group_stay),
        cmocka_unit_test(special_files_are_written_into),
        cmocka_unit_test(failures_leave_the_old_file_and_nothing_else),
        cmocka_unit_test(only_stale_temporary_files_go),
        cmocka_unit_test(a_new_file_replaces_nothing),
        cmocka_unit_test(own_files_that_stay_open_are_no_links),
        cmocka_unit_test(only_files_of_the_own_kind_are_overwritten),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
