/* Locks between processes: who has one, what a file that is removed, replaced or stale (NFS) does to it.  flock is watched: what a
 * machine elsewhere would do between opening and locking is done there. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/lock.h"

static char path[256];

/* What happens before the next calls of flock. */
typedef enum event { NOTHING, STALE, REPLACED } event;
static event before;
static int times;

static void replace_file(void)
{
    char other[300];
    snprintf(other, sizeof other, "%s.new", path);
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(rename(other, path), 0);
}

int flock(int file, int operation)
{
    if (before != NOTHING && times > 0) {
        times--;
        if (before == STALE) {
            errno = ESTALE;
            return -1;
        }
        replace_file();
    }
    return (int)syscall(SYS_flock, file, operation);
}

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

static flim_status try_lock(flim_lock *lock, char holder[FLIM_LOCK_HOLDER], flim_error *err)
{
    const flim_log nobody = {0};
    holder[0] = '\0';
    return flim_lock_try(path, "a fold", &nobody, lock, holder, err);
}

/* Whether a process of its own gets the lock; it ends with it. */
static bool another_gets_it(void)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        flim_error err = {0};
        flim_lock lock;
        char holder[FLIM_LOCK_HOLDER];
        _exit(try_lock(&lock, holder, &err) != FLIM_OK ? 2 : flim_lock_held(&lock) ? 0 : 1);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

static int begin(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_lock.%ld", (long)getpid());
    before = NOTHING;
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void one_at_a_time(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_lock lock, second;
    char holder[FLIM_LOCK_HOLDER], own[64], host[256] = "";
    ok(try_lock(&lock, holder, &err), &err);
    assert_true(flim_lock_held(&lock));
    assert_false(another_gets_it());
    ok(try_lock(&second, holder, &err), &err); /* not the same process either: it belongs to the open file */
    assert_false(flim_lock_held(&second));
    gethostname(host, sizeof host - 1);
    snprintf(own, sizeof own, "process %ld on %.40s", (long)getpid(), host);
    assert_string_equal(holder, own);
    assert_false(another_gets_it()); /* opening and closing it once more has not ended it */
    flim_lock_release(&lock);
    assert_true(another_gets_it());
}

/* A lock is taken although something happens to its file, so many times, before it is looked at. */
static void is_taken_after(event what, int how_often)
{
    flim_error err = {0};
    flim_lock lock;
    char holder[FLIM_LOCK_HOLDER];
    before = what;
    times = how_often;
    ok(try_lock(&lock, holder, &err), &err);
    assert_true(flim_lock_held(&lock) && times == 0);
    assert_false(another_gets_it());
    flim_lock_release(&lock);
}

/* Two processes that hold the locks of two files of one name would both train the fold. */
static void a_file_that_is_replaced_is_opened_again(void **state)
{
    (void)state;
    is_taken_after(REPLACED, 3);
}

static void a_stale_file_is_opened_again(void **state)
{
    (void)state;
    is_taken_after(STALE, 2);
}

static void it_is_not_tried_for_ever(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_lock lock;
    char holder[FLIM_LOCK_HOLDER];
    before = STALE;
    times = 1000;
    assert_int_equal(try_lock(&lock, holder, &err), FLIM_ERROR_WRITE);
    assert_false(flim_lock_held(&lock));
    assert_non_null(strstr(err.text, "cannot lock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(one_at_a_time, begin, end),
                                       cmocka_unit_test_setup_teardown(a_file_that_is_replaced_is_opened_again, begin, end),
                                       cmocka_unit_test_setup_teardown(a_stale_file_is_opened_again, begin, end),
                                       cmocka_unit_test_setup_teardown(it_is_not_tried_for_ever, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
