/* Stages: trainings one after the other, each with settings of its own, the weights carried on (a curriculum).
 *
 * For: train_cv, which runs them within each fold, and gpu_plan, which plans each.  settings->stages lists them as texts of
 *      words: "pretrain epochs=10 lr=1e-3"; a word without '=' (or name=...) is the name, the others are settings over the
 *      run's own.  In a config a stage may be a map as well.  The first one may say kind=pretraining: its settings are
 *      those of flim_settings_of_pretraining, and it is none of the trainings that flim_stages_read gives.
 * Owns: a stage owns its settings; flim_stage_free.
 * Errors: FLIM_ERROR_USAGE names the stage, the word and what is allowed; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_STAGES_H
#define FLIM_STAGES_H

#include "flim/settings.h"

typedef struct flim_stage {
    char name[64]; /* "stage 2" if the text has none */
    flim_settings settings; /* the run's with the stage's over them */
} flim_stage;

/* Reads one stage; number: its place, from 1.  After an error the name is set if the text has one, and nothing needs to be
 * freed. */
flim_status flim_stage_read(const flim_settings *run, const char *text, int number, flim_stage *out, flim_error *err);
void flim_stage_free(flim_stage *stage); /* zeroed is allowed */

/* All stages of a run, or the one that settings->stage names; *out is the caller's (flim_stages_free), NULL and *n = 0 if there
 * are none.  A stage of a training may change what changes the numbers of one training (what --resume-override may change),
 * and its memory; data, folds, network and seed are the run's. */
flim_status flim_stages_read(const flim_settings *run, flim_stage **out, int *n, flim_error *err);
void flim_stages_free(flim_stage *stages, int n);

#endif
