#include "bench/bench_internal.h"

#include <string.h>

#include "core/parse.h"

/* A new subcommand is a file of this folder, a line in commands.h and a line here. */
static const flim_bench_command *const commands[] = {
    &flim_bench_step, &flim_bench_feed, &flim_bench_loader, &flim_bench_layers, &flim_bench_limits, &flim_bench_memory, NULL,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] - 1 };

const flim_bench_command *const *flim_bench_commands(void)
{
    return commands;
}

flim_status flim_bench_find(const char *name, const flim_bench_command **out, flim_error *err)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i]->name) == 0) {
            *out = commands[i];
            return FLIM_OK;
        }
        names[i] = commands[i]->name;
    }
    return flim_fail(err, FLIM_ERROR_USAGE, "unknown subcommand '%s' (did you mean '%s'? see flim_bench --help)", name,
                     flim_nearest(name, names, N_COMMANDS));
}
