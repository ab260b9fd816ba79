#include "common/tool.h"

int tool_main(const flim_flag_table *table, void *options, tool_run run, int argc, char **argv)
{
    flim_error err = {0};
    flim_string_list operands = {0};
    bool go;
    console screen;
    console_open(&screen, false, false);
    flim_status status = flim_flag_table_read(table, options, argc, argv, &operands, stdout, &go, &err);
    if (go) {
        status = run(options, &operands, &screen, &err);
        flim_flag_table_free(table, options);
        flim_string_list_free(&operands);
    }
    if (status == FLIM_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        status = flim_fail(&err, FLIM_ERROR_WRITE, "could not write to standard output");
    }
    return console_exit(&screen, table->program, status, &err);
}
