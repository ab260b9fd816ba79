/* What a call of gpu_plan works on, and what its parts share. */
#ifndef FLIM_GPU_PLAN_INTERNAL_H
#define FLIM_GPU_PLAN_INTERNAL_H

#include "flim/dataset.h"
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

/* --show: what a config uses, stage by stage, as lines and as json's "stages". */
flim_status flim_plan_show(const flim_plan_session *s, flim_json *json, flim_error *err);

#endif
