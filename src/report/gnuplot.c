#include "report/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "report/templates.h"

enum { MOST_SVG = 1 << 26 };

extern char **environ;

static flim_status make_temporary(char path[64], int *fd, flim_error *err)
{
    snprintf(path, 64, "/tmp/flim_plot_XXXXXX");
    *fd = mkostemp(path, O_CLOEXEC);
    return *fd >= 0 ? FLIM_OK
                    : flim_fail(err, FLIM_ERROR_WRITE, "cannot write a temporary file in /tmp: %s", strerror(errno));
}

/* Writes text as a quoted string of gnuplot. */
static void put_quoted(FILE *stream, const char *text)
{
    putc('\'', stream);
    for (; *text; text++) {
        if (*text == '\'') {
            putc('\'', stream); /* doubled inside single quotes */
        }
        putc((unsigned char)*text < ' ' ? ' ' : *text, stream);
    }
    putc('\'', stream);
}

/* Starts gnuplot with stdout and stderr into files and waits.  *code: its exit code, 127 if it could not be started. */
static int spawn_and_wait(const char *script, int out, int complaints, int *code)
{
    char program[] = "gnuplot", quiet[] = "-d"; /* -d: no start-up files of the user */
    char *path = (char *)script, *const argv[] = {program, quiet, path, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int result = 0;
    *code = 127;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return ENOMEM;
    }
    if (posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, complaints, STDERR_FILENO) != 0) {
        result = ENOMEM;
    }
    if (result == 0) {
        result = posix_spawnp(&child, program, &actions, NULL, argv, environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    if (result == 0) {
        int status = 0;
        while (waitpid(child, &status, 0) < 0) {
            if (errno != EINTR) {
                return errno;
            }
        }
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    }
    return result;
}

/* Runs a script and reads what it drew. */
static flim_status run_script(const char *script, char **svg, size_t *bytes, flim_error *err)
{
    flim_status status = FLIM_OK;
    char out_path[64] = "", words_path[64] = "", *words = NULL;
    int out = -1, complaints = -1, code = 0;
    size_t n_words = 0;
    FLIM_TRY_DONE(make_temporary(out_path, &out, err));
    FLIM_TRY_DONE(make_temporary(words_path, &complaints, err));
    const int number = spawn_and_wait(script, out, complaints, &code);
    if (number == ENOENT || code == 127) {
        status = flim_fail(err, FLIM_ERROR, "gnuplot is needed for the plots and was not found: apt-get install gnuplot-nox");
        goto done;
    }
    FLIM_TRY_DONE(flim_file_read(out_path, MOST_SVG, svg, bytes, err));
    if (number != 0 || code != 0 || !strstr(*svg, "</svg>")) {
        flim_free(*svg);
        *svg = NULL;
        const bool said = flim_file_read(words_path, 4096, &words, &n_words, NULL) == FLIM_OK;
        status = flim_fail(err, FLIM_ERROR, "gnuplot failed (%s): %.300s", number ? strerror(number) : "exit code not 0",
                           said ? words : "");
    }
done:
    if (out >= 0) {
        close(out);
        unlink(out_path);
    }
    if (complaints >= 0) {
        close(complaints);
        unlink(words_path);
    }
    flim_free(words);
    return status;
}

flim_status gnuplot_draw(const char *template_name, const flim_json *values, char **svg, size_t *bytes, flim_error *err)
{
    const flim_template_set set = {report_templates, report_templates_n, put_quoted, "?"};
    flim_status status = FLIM_OK;
    char path[64];
    int fd;
    *svg = NULL;
    *bytes = 0;
    FLIM_TRY(make_temporary(path, &fd, err));
    FILE *stream = fdopen(fd, "w");
    if (!stream) {
        close(fd);
        status = flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", path, strerror(errno));
        goto done;
    }
    status = flim_template_write(&set, template_name, values, stream, err);
    const bool lost = ferror(stream);
    if ((fclose(stream) != 0 || lost) && status == FLIM_OK) {
        status = flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s", path);
    }
    FLIM_TRY_DONE(status);
    status = run_script(path, svg, bytes, err);
done:
    unlink(path);
    return status;
}
