/* train_cv: cross-validated training of a FLIM data set.  Everything happens in flim_train_cv (flim/train.h). */
#include <stdio.h>
#include <string.h>

#include "common/console.h"
#include "common/spinning.h"
#include "flim/settings.h"
#include "flim/train.h"
#include "flim/version.h"

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

int main(int argc, char **argv)
{
    flim_settings settings = {0};
    flim_settings_action action = FLIM_SETTINGS_RUN;
    flim_string_list explicit_keys = {0};
    flim_error err = {0};
    console terminal;
    char command_line[4096];

    limit_spinning(argv);
    console_open(&terminal, false, false);
    console_catch_signals();
    flim_status status = flim_settings_init(&settings, &err);
    if (status == FLIM_OK) {
        status = flim_settings_parse(&settings, argc, argv, &action, &explicit_keys, &err);
    }
    if (status != FLIM_OK) {
        goto done;
    }
    switch (action) {
    case FLIM_SETTINGS_HELP: flim_settings_help(stdout); break;
    case FLIM_SETTINGS_VERSION: printf("flimcv %s\n", flim_version()); break;
    case FLIM_SETTINGS_PRINT_CONFIG: status = flim_settings_print(&settings, stdout, &err); break;
    case FLIM_SETTINGS_RUN:
        console_open(&terminal, settings.quiet, settings.log_json);
        join(argc, argv, command_line, sizeof command_line);
        const flim_train_hooks hooks = {.log = console_log(&terminal),
                                        .progress = console_progress,
                                        .context = &terminal,
                                        .stop = console_stop_flag(),
                                        .command_line = command_line,
                                        .explicit_keys = &explicit_keys};
        status = flim_train_cv(&settings, &hooks, NULL, &err);
        break;
    }
done:
    flim_string_list_free(&explicit_keys);
    flim_settings_free(&settings);
    return console_exit(&terminal, "train_cv", status, &err);
}
