/* The main of the programs that train: settings from the command line, then flim_train_cv. */
#ifndef COMMON_TRAIN_H
#define COMMON_TRAIN_H

#include "flim/settings.h"

/* init: defaults of the program's settings.  Returns the exit code. */
int run_training(const char *program, flim_status (*init)(flim_settings *settings, flim_error *err), int argc, char **argv);

#endif
