#include "common/train.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/console.h"
#include "common/spinning.h"
#include "flim/train.h"
#include "train/worker.h"

/* The words of the call with blanks between them. */
static void join(int argc, char **argv, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < argc && used < size; i++) {
        int length = snprintf(out + used, size - used, "%s%s", i ? " " : "", argv[i]);
        used += length > 0 ? (size_t)length : 0;
    }
}

int run_training(const char *program, flim_status (*init)(flim_settings *settings, flim_error *err), int argc, char **argv)
{
    flim_settings settings = {0};
    flim_string_list explicit_keys = {0};
    flim_ranks *ranks = NULL;
    flim_error err = {0};
    console terminal;
    flim_worker worker;
    bool go = false;

    console_start();
    limit_spinning(argv);
    console_open(&terminal, false, false);
    const bool is_worker = flim_worker_begin(&worker);
    flim_status status = init(&settings, &err);
    if (status == FLIM_OK) {
        status = flim_settings_parse(&settings, argc, argv, &explicit_keys, stdout, &go, &err);
    }
    if (go) {
        char command_line[4096];
        console_open(&terminal, settings.quiet, settings.log_json);
        join(argc, argv, command_line, sizeof command_line);
        flim_train_hooks hooks = {.log = console_log(&terminal),
                                  .progress = console_progress,
                                  .workers = console_workers,
                                  .event = settings.log_json ? console_event : NULL,
                                  .context = &terminal,
                                  .stop = console_catch_signals(),
                                  .command_line = command_line,
                                  .explicit_keys = &explicit_keys,
                                  .ranks = strcmp(program, "train_cv") == 0 ? &ranks : NULL};
        if (is_worker) {
            signal(SIGINT, SIG_IGN); /* a terminal's is for the process that started it, which then sends TERM */
            flim_worker_hooks(&worker, &hooks);
        }
        status = is_worker ? flim_train_runs(&settings, &hooks, &err) : flim_train(&settings, &hooks, argv, &err);
        /* A run's lines stand in train.log, too; a fold table that was asked for stands nowhere else. */
        if (status == FLIM_OK && settings.dry_run && (fflush(stdout) != 0 || ferror(stdout))) {
            status = flim_fail(&err, FLIM_ERROR_WRITE, "could not write to standard output");
        }
    }
    flim_string_list_free(&explicit_keys);
    flim_settings_free(&settings);
    if (is_worker) {
        return flim_worker_end(&worker, status, &err);
    }
    const int code = console_exit(&terminal, program, status, &err);
    flim_ranks_close(ranks, code);
    return code;
}
