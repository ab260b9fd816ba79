#include "bench/bench_commands.h"

#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"
#include "core/try.h"

/* A new subcommand is a file of this folder, a line in bench_commands.h and a line here. */
static const flim_bench_command *const commands[] = {
    &flim_bench_step,   &flim_bench_predict, &flim_bench_feed,
    &flim_bench_loader, &flim_bench_layers,  &flim_bench_limits,
    &flim_bench_memory, &flim_bench_augment, NULL,
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
    const char *near = flim_nearest(name, names, N_COMMANDS);
    return flim_fail(err, FLIM_ERROR_USAGE, "unknown subcommand '%s' (%s%s%ssee flim_bench --help)", name,
                     near ? "did you mean '" : "", near ? near : "", near ? "'? " : "");
}

flim_status flim_bench_run(const flim_bench_command *command, int argc, char *const *argv, FILE *out, FILE *instead,
                           const flim_log *log, flim_error *err)
{
    bool go;
    void *options = flim_alloc(1, command->options_bytes, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(options ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_flag_table_read(command->flags, options, argc, argv, NULL, out, &go, err));
    if (go) {
        status = command->measure(options, flim_flag_table_stdout(command->flags, options) ? instead : out, log, err);
        flim_flag_table_free(command->flags, options);
    }
done:
    flim_free(options);
    return status;
}
