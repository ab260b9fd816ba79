#include "report/page/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/text.h"
#include "core/try.h"
#include "report/templates.h"

enum { MOST_SVG = 1 << 26 };

extern char **environ;

/* A file without a name: a process that is killed leaves none. */
static flim_status make_nameless(FILE **out, flim_error *err)
{
    *out = tmpfile();
    return *out ? FLIM_OK : flim_fail(err, FLIM_ERROR_WRITE, "cannot write a temporary file: %s", strerror(errno));
}

/* Its bytes from the start, with a zero byte after them (flim_free). */
static flim_status read_nameless(FILE *file, size_t limit, char **bytes, size_t *count, flim_error *err)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    return flim_file_read(path, limit, bytes, count, err);
}

/* Writes a text as a quoted string of gnuplot: in double quotes, with every sign that means something there or to its scanner
 * (quotes, backslash, the backquote that runs a command) in octal.  gnuplot 5.4 reads \'\'\'a\'\'\' wrongly. */
static void put_quoted(FILE *stream, const char *text)
{
    putc('"', stream);
    while (*text) {
        char shown[64];
        const size_t length = flim_utf8_cut(text, 4); /* a character at least */
        snprintf(shown, sizeof shown, "%.*s", (int)length, text);
        text += length;
        char visible[64];
        flim_text_show(shown, visible, sizeof visible);
        for (const char *at = visible; *at; at++) {
            fprintf(stream, strchr("\"'\\`$@", *at) ? "\\%03o" : "%c", *at);
        }
    }
    putc('"', stream);
}

/* Starts gnuplot with its three streams and waits.  *code: its exit code, 127 if it could not be started. */
static int spawn_and_wait(FILE *script, FILE *out, FILE *complaints, int *code)
{
    char program[] = "gnuplot", quiet[] = "-d" /* no start-up files of the user */, input[] = "-";
    char *const argv[] = {program, quiet, input, NULL};
    FILE *const stream[] = {script, out, complaints}; /* standard input, output and error */
    posix_spawn_file_actions_t actions;
    pid_t child;
    int result = 0;
    *code = 127;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return ENOMEM;
    }
    for (int i = 0; i < 3 && result == 0; i++) {
        result = posix_spawn_file_actions_adddup2(&actions, fileno(stream[i]), i);
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
static flim_status run_script(FILE *script, char **svg, size_t *bytes, flim_error *err)
{
    flim_status status = FLIM_OK;
    FILE *out = NULL, *complaints = NULL;
    char *words = NULL;
    int code = 0;
    size_t n_words = 0;
    FLIM_TRY_DONE(make_nameless(&out, err));
    FLIM_TRY_DONE(make_nameless(&complaints, err));
    const int number = spawn_and_wait(script, out, complaints, &code);
    if (number == ENOENT || code == 127) {
        status = flim_fail(err, FLIM_ERROR, "gnuplot is needed for the plots and was not found: apt-get install gnuplot-nox");
        goto done;
    }
    FLIM_TRY_DONE(read_nameless(out, MOST_SVG, svg, bytes, err));
    if (number != 0 || code != 0 || !strstr(*svg, "</svg>")) {
        flim_free(*svg);
        *svg = NULL;
        const bool said = read_nameless(complaints, 4096, &words, &n_words, NULL) == FLIM_OK;
        status = flim_fail(err, FLIM_ERROR, "gnuplot failed (%s): %.300s", number ? strerror(number) : "exit code not 0",
                           said ? words : "");
    }
done:
    if (out) {
        fclose(out);
    }
    if (complaints) {
        fclose(complaints);
    }
    flim_free(words);
    return status;
}

flim_status gnuplot_draw(const char *template_name, const flim_json *values, char **svg, size_t *bytes, flim_error *err)
{
    const flim_template_set set = {report_templates, report_templates_n, put_quoted, "?"};
    flim_status status = FLIM_OK;
    FILE *script;
    *svg = NULL;
    *bytes = 0;
    FLIM_TRY(make_nameless(&script, err));
    FLIM_TRY_DONE(flim_template_write(&set, template_name, values, script, err));
    if (fflush(script) != 0 || ferror(script)) {
        status = flim_fail(err, FLIM_ERROR_WRITE, "cannot write a temporary file: %s", strerror(errno));
        goto done;
    }
    rewind(script); /* gnuplot shares its place in the file */
    status = run_script(script, svg, bytes, err);
done:
    fclose(script);
    return status;
}
