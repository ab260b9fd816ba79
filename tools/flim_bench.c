/* flim_bench SUBCOMMAND [flags]: measures one part of flimcv; see bench/bench.h. */
#include <stdio.h>

#include "common/tool.h"
#include "core/try.h"
#include "bench/bench.h"

enum { MOST_SUBCOMMANDS = 32 };

/* The subcommand and its flags, which its own table reads. */
typedef struct call {
    int argc;
    char **argv;
} call;

static flim_status measure(void *read, const flim_string_list *operands, console *screen, flim_error *err)
{
    const call *c = read;
    FILE *out = console_stream(screen);
    console_leave_stdout(screen); /* that is for results */
    const flim_log log = console_log(screen);
    const flim_bench_command *command = NULL;
    if (operands->n == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "a SUBCOMMAND is needed, for example flim_bench step (flim_bench --help lists them)");
    }
    FLIM_TRY(flim_bench_find(operands->item[0], &command, err));
    return flim_bench_run(command, c->argc, c->argv, out, stderr, &log, err);
}

int main(int argc, char **argv)
{
    flim_subcommand list[MOST_SUBCOMMANDS];
    int n = 0;
    for (const flim_bench_command *const *c = flim_bench_commands(); *c && n < MOST_SUBCOMMANDS; c++) {
        list[n++] = (flim_subcommand){(*c)->name, (*c)->summary, (*c)->flags};
    }
    const flim_flag_table table = {.program = "flim_bench",
                                   .usage = "flim_bench SUBCOMMAND [flag]...",
                                   .about = "Measures one component of flimcv.",
                                   .operand = "SUBCOMMAND",
                                   .purpose = "measurements of flimcv's parts",
                                   .see_also = "train_cv(1), gpu_plan(1)",
                                   .subcommand = list,
                                   .n_subcommands = n};
    call c = {argc - 1, argv + 1};
    return tool_main(&table, &c, measure, argc < 2 ? argc : 2, argv);
}
