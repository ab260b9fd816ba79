#include "report/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"

enum { MOST_SVG = 1 << 26 };

extern char **environ;

static flim_status make_temporary(char path[64], int *fd, flim_error *err)
{
    snprintf(path, 64, "/tmp/flim_plot_XXXXXX");
    *fd = mkostemp(path, O_CLOEXEC);
    return *fd >= 0 ? FLIM_OK
                    : flim_fail(err, FLIM_ERROR_WRITE, "cannot write a temporary file in /tmp: %s", strerror(errno));
}

flim_status gnuplot_begin(gnuplot_script *script, int width, int height, flim_error *err)
{
    int fd;
    *script = (gnuplot_script){0};
    FLIM_TRY(make_temporary(script->path, &fd, err));
    script->stream = fdopen(fd, "w");
    if (!script->stream) {
        close(fd);
        unlink(script->path);
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", script->path, strerror(errno));
    }
    fprintf(script->stream,
            "set terminal svg size %d,%d noenhanced font 'sans-serif,11' background 'white'\n"
            "set encoding utf8\nset border 3 lc rgb '#555555'\nset tics nomirror out scale 0.6 textcolor rgb '#333333'\n"
            "set key noenhanced samplen 1.4 spacing 0.95 font ',9'\n",
            width, height);
    /* Okabe and Ito's colours, which people who see no red or green can tell apart too, then darker ones. */
    static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
                                          "#882255", "#7a7a00", "#44546a", "#8c510a", "#5e3c99", "#1b7837"};
    for (size_t i = 0; i < sizeof colours / sizeof colours[0]; i++) {
        fprintf(script->stream, "set linetype %zu lc rgb '%s'\n", i + 1, colours[i]);
    }
    fprintf(script->stream, "set linetype cycle %zu\n", sizeof colours / sizeof colours[0]);
    return FLIM_OK;
}

void gnuplot_abandon(gnuplot_script *script)
{
    if (script->stream) {
        fclose(script->stream);
        script->stream = NULL;
        unlink(script->path);
    }
}

void gnuplot_put_text(FILE *stream, const char *text)
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

/* Starts gnuplot with stdout and stderr into files and waits.  *code: its exit code, 127 where it could not be started. */
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

flim_status gnuplot_run(gnuplot_script *script, char **svg, size_t *bytes, flim_error *err)
{
    char out_path[64] = "", words_path[64] = "", *words = NULL;
    int out = -1, complaints = -1, code = 0;
    size_t n_words = 0;
    *svg = NULL;
    *bytes = 0;
    int written = fflush(script->stream) == 0 && !ferror(script->stream);
    flim_status status =
        written ? make_temporary(out_path, &out, err) : flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s", script->path);
    if (status == FLIM_OK) {
        status = make_temporary(words_path, &complaints, err);
    }
    if (status != FLIM_OK) {
        goto done;
    }
    int number = spawn_and_wait(script->path, out, complaints, &code);
    if (number == ENOENT || code == 127) {
        status = flim_fail(err, FLIM_ERROR, "gnuplot is needed for the plots and was not found: apt-get install gnuplot-nox");
        goto done;
    }
    status = flim_file_read(out_path, MOST_SVG, svg, bytes, err);
    if (status == FLIM_OK && (number != 0 || code != 0 || !strstr(*svg, "</svg>"))) {
        flim_free(*svg);
        *svg = NULL;
        status = flim_file_read(words_path, 4096, &words, &n_words, NULL);
        status = flim_fail(err, FLIM_ERROR, "gnuplot failed (%s): %.300s", number ? strerror(number) : "exit code not 0",
                           status == FLIM_OK ? words : "");
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
    gnuplot_abandon(script);
    return status;
}
