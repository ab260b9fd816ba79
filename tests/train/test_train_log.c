/* train.log, written by several processes at once: lines of any length stay whole, and none is lost. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/file.h"
#include "train/train_log.h"

enum { PROCESSES = 4, LINES = 200, MOST = 100000 };

/* A line of process p: "p i n xxx", with n times x. */
static int length_of(int p, int i)
{
    return (p * 7919 + i * 104729) % MOST;
}

static void write_lines(const char *path, int p)
{
    static char text[MOST + 64];
    flim_train_log file;
    flim_error err = {0};
    const flim_log log = flim_train_log_begin(&file, NULL);
    log.line(log.context, FLIM_LOG_NOTE, "held until the file is open");
    if (flim_train_log_open(&file, path, true, &err) != FLIM_OK) {
        _exit(1);
    }
    for (int i = 0; i < LINES; i++) {
        const int n = length_of(p, i), at = snprintf(text, 64, "%d %d %d ", p, i, n);
        memset(text + at, 'x', (size_t)n);
        text[at + n] = '\0';
        log.line(log.context, FLIM_LOG_INFO, text);
    }
    _exit(flim_train_log_close(&file, &err) == FLIM_OK ? 0 : 1);
}

static void lines_of_several_processes_stay_whole(void **state)
{
    (void)state;
    char folder[] = "/tmp/flim_log_XXXXXX", path[64], *bytes = NULL;
    size_t count = 0;
    int held = 0, seen[PROCESSES] = {0}, status;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/train.log", folder);
    for (int p = 0; p < PROCESSES; p++) {
        if (fork() == 0) {
            write_lines(path, p);
        }
    }
    for (int p = 0; p < PROCESSES; p++) {
        assert_true(wait(&status) > 0 && status == 0);
    }
    assert_int_equal(flim_file_read(path, 1 << 28, &bytes, &count, NULL), FLIM_OK);
    for (char *at = bytes, *end; at < bytes + count; at = end + 1) {
        int p, i, n, read = 0;
        end = strchr(at, '\n');
        assert_non_null(end);
        *end = '\0';
        if (strcmp(at, "note: held until the file is open") == 0) {
            held++;
        } else if (sscanf(at, "%d %d %d %n", &p, &i, &n, &read) != 3 || p >= PROCESSES || i != seen[p]++ ||
                   n != length_of(p, i) || strspn(at + read, "x") != (size_t)n || at + read + n != end) {
            fail_msg("a line is broken: %.80s", at);
        }
    }
    assert_int_equal(held, PROCESSES);
    for (int p = 0; p < PROCESSES; p++) {
        assert_int_equal(seen[p], LINES);
    }
    flim_free(bytes);
    unlink(path);
    rmdir(folder);
}

/* A file that takes nothing more: the first line that is lost is remembered, and told at the end. */
static void a_full_disk_is_told(void **state)
{
    (void)state;
    flim_train_log file;
    flim_error err = {0};
    const flim_log log = flim_train_log_begin(&file, NULL);
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    const char *path = "test_train_log_full.log";
    assert_int_equal(flim_train_log_open(&file, path, true, &err), FLIM_OK);
    const int full = open("/dev/full", O_WRONLY);
    assert_int_equal(dup2(full, file.file), file.file);
    close(full);
    log.line(log.context, FLIM_LOG_INFO, "lost");
    assert_int_equal(flim_train_log_check(&file, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "test_train_log_full.log: No space left"));
    assert_int_equal(flim_train_log_close(&file, &err), FLIM_ERROR_WRITE);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_of_several_processes_stay_whole),
                                       cmocka_unit_test(a_full_disk_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
