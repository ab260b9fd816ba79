/* What a call of gpu_plan works on, and what its parts share. */
#ifndef FLIM_GPU_PLAN_INTERNAL_H
#define FLIM_GPU_PLAN_INTERNAL_H

#include "flim/dataset.h"
#include "flim/stages.h"
#include "plan/plan.h"

typedef struct flim_plan_session {
    const flim_gpu_plan_options *o;
    flim_device *device; /* described */
    flim_device *real; /* the card that is there; NULL = a card by name or size */
    flim_plan_budget budget;
    flim_network net;
    flim_plan_request request; /* batch 0 = auto */
    int64_t cells; /* of the largest training set, which no batch exceeds */
} flim_plan_session;

/* The largest divisor (1 at least) of `whole` cells per update that is at most `most`: batch x accumulate then is `whole`
 * exactly. */
int64_t flim_plan_divisor(int64_t whole, int64_t most);

/* A stage of the config: its settings over `run`, its network, and what is asked for it.  number: from 1.  name (64 bytes) is
 * set after an error, too; settings are the caller's then to free if it is FLIM_OK. */
flim_status flim_plan_read_stage(const flim_plan_session *s, const flim_settings *run, const char *text, int number,
                                 flim_stage *stage, flim_network *net, flim_plan_request *request, flim_error *err);

/* The same of settings: net and request. */
flim_status flim_plan_request_stage(const flim_plan_session *s, const flim_settings *set, flim_network *net,
                                    flim_plan_request *request, flim_error *err);
/* As many cells as a batch of these settings may have: those of the largest training set; of a pretraining those of its further files,
 * too, in views. */
int64_t flim_plan_most_cells(const flim_plan_session *s, const flim_settings *set);

/* --apply: the plan into the config, and a plan for each of its stages, as lines and into the json. */
flim_status flim_plan_apply_all(const flim_plan_session *s, const flim_plan *plan, flim_json *json, flim_error *err);

/* --show: what a config uses, stage by stage, as lines and as json's "stages". */
flim_status flim_plan_show(const flim_plan_session *s, flim_json *json, flim_error *err);

/* What each fold's pretraining uses, beside suggestions for the training; nothing without one. */
flim_status flim_plan_tell_pretraining(const flim_plan_session *s, flim_json *json, flim_error *err);

#endif
