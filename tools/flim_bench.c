/* flim_bench SUBCOMMAND [flags]: measures one part of flimcv; see flim/bench.h. */
#include <stdio.h>
#include <string.h>

#include "flim/bench.h"
#include "flim/version.h"

static void print_help(FILE *out)
{
    fputs("usage: flim_bench SUBCOMMAND [flags]      (flim_bench SUBCOMMAND --help lists its flags)\n\n", out);
    for (const flim_bench_command *const *c = flim_bench_commands(); *c; c++) {
        fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->summary);
    }
}

static void print_note(void *context, flim_log_level level, const char *text)
{
    (void)context;
    fprintf(stderr, "%s%s\n", level == FLIM_LOG_WARNING ? "warning: " : "", text);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return FLIM_ERROR_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return FLIM_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("flim_bench %s\n", flim_version());
        return FLIM_OK;
    }
    const flim_log log = {print_note, NULL};
    const flim_bench_command *command = NULL;
    flim_error err = {0};
    flim_status status = flim_bench_find(argv[1], &command, &err);
    if (status == FLIM_OK) {
        status = command->run(argc - 1, argv + 1, stdout, &log, &err);
    }
    if (status == FLIM_OK && fflush(stdout) != 0) {
        status = flim_fail(&err, FLIM_ERROR_WRITE, "could not write to standard output");
    }
    if (status != FLIM_OK) {
        fprintf(stderr, "flim_bench: %s\n", err.text);
        return status <= FLIM_ERROR_WRITE ? (int)status : FLIM_ERROR;
    }
    return 0;
}
