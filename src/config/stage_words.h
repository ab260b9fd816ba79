/* Stages of kind pretraining, between stages.c and pretraining_per_fold.c. */
#ifndef FLIM_CONFIG_STAGE_WORDS_H
#define FLIM_CONFIG_STAGE_WORDS_H

#include "flim/stages.h"

/* Number of the first stage of the list whose text says kind=pretraining; -1 = none. */
int flim_stages_pretraining(const flim_string_list *stages);
/* Pretrain's defaults with what a pretraining has of its run; out is the caller's (flim_settings_free) if it is FLIM_OK. */
flim_status flim_pretraining_defaults(const flim_settings *run, flim_settings *out, flim_error *err);
/* Sets one key of those that a pretraining may set. */
flim_status flim_pretraining_set(flim_settings *settings, const char *key, const char *value, flim_error *err);

#endif
