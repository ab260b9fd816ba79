#include "common/tool.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "core/file.h"

/* Standard output is a pipe that nobody reads any more. */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

void tool_say_written(const flim_log *log, const char *const *path, int n)
{
    char list[4096] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof list; i++) {
        if (path[i] && path[i][0] && !flim_file_is_standard_output(path[i])) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", path[i]);
        }
    }
    if (used) {
        flim_log_line(log, FLIM_LOG_INFO, "written: %s", list);
    }
}

int tool_main(const flim_flag_table *table, void *options, tool_run run, int argc, char **argv)
{
    flim_error err = {0};
    flim_string_list operands = {0};
    bool go;
    console screen;
    console_start();
    console_open(&screen, false, false);
    flim_status status = flim_flag_table_read(table, options, argc, argv, &operands, stdout, &go, &err);
    if (go) {
        if (flim_flag_table_stdout(table, options)) {
            console_leave_stdout(&screen);
        }
        status = run(options, &operands, &screen, &err);
        console_close_stream(&screen);
        flim_flag_table_free(table, options);
        flim_string_list_free(&operands);
    }
    const bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (status == FLIM_OK && lost && reader_is_gone()) {
        return 128 + SIGPIPE; /* it has had enough: head, less */
    }
    if (status == FLIM_OK && lost) {
        status = flim_fail(&err, FLIM_ERROR_WRITE, "could not write to standard output");
    }
    return console_exit(&screen, table->program, status, &err);
}
