/* The memory planner: what a run will need on a card, and the batch that fits, before anything is allocated.
 *
 * For: gpu_plan, and train_cv's start and --batch auto.  The need is the backend's own arithmetic (flim_program_memory of a
 *      program compiled for the device), so it is exact for the plans it was made with; the card need not be there
 *      (flim_device_describe).  Beside the program it counts the loader's buffers, what decoded cells may take, and the CUDA
 *      context.
 * Owns: plain structs; a request's network is the caller's.
 * Errors: FLIM_ERROR_MEMORY if not even one cell fits, with what is needed; FLIM_ERROR_USAGE for what no card can do and for
 *      files and names that are wrong; those of compiling.
 */
#ifndef FLIM_PLAN_H
#define FLIM_PLAN_H

#include "flim/device.h"
#include "formats/json.h"
#include "flim/log.h"
#include "flim/settings.h"

/* ---- cards ------------------------------------------------------------------------------------------------------------ */

/* Reads configs/devices/NAME.json: each figure as {"value": ..., "source": ...}. */
flim_status flim_card_read(const char *path, flim_card *out, flim_error *err);
/* The card of that name in a folder of such files: its file name, its name or an alias, in any case, blanks and dashes left
 * out.  path (may be NULL) gets its file.  FLIM_ERROR_USAGE lists the names there are. */
flim_status flim_card_find(const char *folder, const char *name, flim_card *out, char path[4096], flim_error *err);
/* The card of the folder whose memory is nearest to so many bytes, of those that can be planned for. */
flim_status flim_card_nearest(const char *folder, int64_t bytes, flim_card *out, flim_error *err);
/* Calls `take` for every card of the folder, by file name; what it returns ends the list unless it is FLIM_OK. */
typedef flim_status flim_card_taker(void *context, const char *stem, const flim_card *card, flim_error *err);
flim_status flim_card_each(const char *folder, flim_card_taker *take, void *context, flim_error *err);
/* The folder of the card files: $FLIM_DEVICES, share/flimcv/devices beside the program's bin/, or the source tree's. */
flim_status flim_card_folder(char folder[4096], flim_error *err);
/* "24GB" (10^9), "22.5GiB" (2^30), MB, MiB, or bytes. */
flim_status flim_parse_bytes(const char *what, const char *text, int64_t *out, flim_error *err);

/* ---- plans ------------------------------------------------------------------------------------------------------------ */

/* What a pretraining's network is to learn. */
flim_pretraining flim_pretraining_of(const flim_settings *settings);
/* The network that settings ask for, for cells of T x H x W: a classifier, or with settings->pretrains what a pretraining trains.
 * classes: at least 2. */
flim_status flim_network_of(const flim_settings *settings, int classes, int t, int h, int w, flim_network *out,
                            flim_error *err);
/* Draws of a cell that a batch of the network has at least: 2 if a loss is over pairs. */
int64_t flim_network_views(const flim_network *net);

typedef struct flim_plan_request {
    const flim_network *net;
    flim_precision precision; /* not AUTO */
    int64_t batch; /* cells per training micro-batch; 0 = no training */
    int64_t eval_batch; /* 0 = batch; -1 = none */
    int64_t accumulate; /* micro-batches per update */
    flim_recompute recompute;
    bool benchmark, deterministic;
    bool average; /* of the weights (flim_program_options) */
    int prefetch; /* batches ready ahead; 0 = no loader */
    int64_t cache_bytes; /* most that decoded cells may take */
    bool cache_on_device; /* of the card's memory, not the host's */
} flim_plan_request;

typedef struct flim_plan {
    flim_plan_request request;
    flim_memory_plan memory; /* all components, the context included */
    int64_t program_bytes; /* of them what the program allocates on the device: the predicted peak */
    int64_t bounded_bytes; /* what a budget bounds: these, and on the CPU what stands beside them in the same memory */
    int64_t device_bytes; /* program and context */
    flim_precision auto_precision, amp_precision; /* what the device takes for auto and for amp */
    flim_recompute recompute; /* what AUTO came to: NONE, ALL, or AUTO if some blocks recompute */
} flim_plan;

/* Cells of a prediction batch, what 0 and -1 stand for resolved. */
int64_t flim_plan_eval_batch(const flim_plan_request *request);
/* A request from settings: network sizes and eval batch as set; precision as the device takes it for auto; a batch of 0
 * (auto) is the caller's to settle. */
flim_plan_request flim_plan_request_of(const flim_settings *settings, const flim_network *net,
                                       const flim_device_info *device);

/* What a card has for a run. */
typedef struct flim_plan_budget {
    int64_t total; /* bytes of the card */
    int64_t held; /* by the context and, on a card that is there, by other programs */
    double margin; /* share of the card that plans may fill */
    int64_t bytes; /* that a program may allocate: margin * total - held */
} flim_plan_budget;

/* margin: 0 < m <= 1; 0 = 0.85. */
flim_plan_budget flim_plan_budget_of(const flim_device *device, double margin);

/* The program that a plan is of. */
flim_status flim_plan_compile(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                              flim_program **out, flim_error *err);
flim_status flim_plan_make(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                           flim_plan *out, flim_error *err);

/* Beside the program's items in plan->memory, what else the request needs: the context and what others hold, the loader's
 * prefetch buffers, decoded cells; sets the sums. */
void flim_plan_complete(flim_plan *plan, const flim_device *device, const flim_plan_budget *budget);

/* Whether a plan stays within the budget. */
bool flim_plan_fits(const flim_plan *plan, const flim_plan_budget *budget);
/* What a program for the request may take of the budget: on the CPU less than all of it. */
int64_t flim_plan_limit(const flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget);

/* The largest batch of at most `cap` cells (the training set's) whose plan stays within the budget: a real search, as memory
 * is not monotone in the batch.  Batches above 32 are multiples of 8, unless the cap itself fits.  An eval batch that is
 * given is kept beside every batch; if it does not fit even beside one cell, out->request.eval_batch is 0: the training
 * batch. */
flim_status flim_plan_largest(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                              int64_t cap, flim_plan *out, flim_error *err);

/* A request's batch of 0 (auto) becomes the largest that fits. */
flim_status flim_plan_settle_batch(flim_device *device, const flim_plan_budget *budget, int64_t cap,
                                   flim_plan_request *request, flim_error *err);

/* What really running a plan took. */
typedef struct flim_plan_trial {
    int64_t planned_bytes; /* the program's, as compiled for the device */
    int64_t allocated_bytes; /* by the program, as the device's free memory tells; 0 on the CPU */
    int64_t grown_bytes; /* more that was gone after the steps: code that the driver loads when it is first used */
    double train_ms, predict_ms; /* a full batch: the faster of two; 0 if there is none */
} flim_plan_trial;

/* Compiles and allocates a program of its own on a real device, runs training on a full batch, on one of a single cell and
 * on a full one again, then prediction on a full and a partial batch, and releases everything: nothing else changes. */
flim_status flim_plan_try(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                          flim_plan_trial *out, flim_error *err);

/* --batch auto on a device that is there: flim_plan_largest, by a description of the device if it has one, then
 * flim_plan_try, with fewer cells until that succeeds: the plan's own tuning may want more workspace, others may take memory,
 * and a card may have no right convolution for so many cells.  Each step down is a note in `log` (may be NULL).  *out is the
 * plan that ran, *trial what it took. */
flim_status flim_plan_auto(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget, int64_t cap,
                           const flim_log *log, flim_plan *out, flim_plan_trial *trial, flim_error *err);

/* ---- suggestions ------------------------------------------------------------------------------------------------------ */

enum { FLIM_MAX_SUGGESTIONS = 7 };

typedef struct flim_suggestions {
    flim_plan current; /* of the settings as they are */
    bool current_fits; /* into the budget */
    char current_error[512]; /* why there is no plan of them; "" = there is */
    int n;
    flim_plan plan[FLIM_MAX_SUGGESTIONS]; /* safest (least of the card) first */
    const char *note[FLIM_MAX_SUGGESTIONS]; /* what each is for */
    int recommended; /* index */
    char why[400];
} flim_suggestions;

/* Plans for a request: as it is, and with the batch, precision and recomputation that the card allows; what gains nothing
 * over another is left out.  effective: cells per update (batch x accumulate) to keep exactly; 0 = the request's, or nearly
 * so many if only tiny batches divide them.  cap: cells of the training set, which no batch and no update exceeds. */
flim_status flim_plan_suggest(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                              int64_t effective, int64_t cap, flim_suggestions *out, flim_error *err);

/* ---- configs ---------------------------------------------------------------------------------------------------------- */

/* What the config lists under stages:, with the plan of one of them. */
typedef struct flim_planned_stage {
    int item; /* 0-based */
    const char *words; /* as settings->stages has them; a view */
    char name[64];
    flim_settings settings; /* the stage's over the run's with the run's plan; flim_settings_free */
    flim_plan plan;
} flim_planned_stage;

/* The plan's batch, accumulate, eval_batch, precision and checkpoint_activations become the settings'; what says the same in other
 * words stays. */
flim_status flim_plan_put_into(const flim_plan *plan, flim_settings *settings, flim_error *err);

/* Writes a plan's batch, accumulate, eval_batch, precision and checkpoint_activations into a YAML config, keeping every other
 * byte, after saving it as CONFIG.backup.N (the first free N from 1); atomic.  A value that the config (with what it
 * includes) has already is left as it is; a key that must change and stands not in the file itself is added at its end, where
 * it overrides includes.  The same for its stages, each in its item of stages: (n_stages of them, 0 = none); *stages_changed of
 * them are.  Another preset than the plan's network has is FLIM_ERROR_USAGE; the file is untouched then, as after every other
 * error.  backup gets the copy's path. */
flim_status flim_plan_apply(const flim_plan *plan, const flim_planned_stage *stage, int n_stages, const char *config,
                            char backup[4096], int *stages_changed, flim_error *err);

/* ---- gpu_plan --------------------------------------------------------------------------------------------------------- */

typedef struct flim_gpu_plan_options {
    const char *gpu, *gpu_memory; /* "" and "auto" = the card that is there */
    const char *devices; /* folder of the card files; "" = flim_card_folder */
    const flim_settings *settings; /* what is to run */
    const char *config; /* for `apply` and for stages; "" = none */
    bool show, apply, profile;
    int64_t effective; /* cells per update to keep; 0 = as set */
    int64_t cells; /* of the training set; 0 = the largest of the folds of the data file, or not bounded if there is none */
    int64_t classes, bins, height, width; /* of the cells if there is no data file */
    const flim_log *log; /* gets the tables */
} flim_gpu_plan_options;

/* The cards of the folder ("" = flim_card_folder) as a table through `log`: memory, bandwidth, rates, precisions; in fewer than
 * 112 columns (0 = any number) without their long names.  *json (the caller's) gets all of it. */
flim_status flim_gpu_plan_list(const char *devices, int columns, const flim_log *log, flim_json **json, flim_error *err);

/* All of gpu_plan: *json (the caller's) gets what the tables say. */
flim_status flim_gpu_plan(const flim_gpu_plan_options *options, flim_json **json, flim_error *err);

/* ---- output ----------------------------------------------------------------------------------------------------------- */

/* What a plan's share of the card means: "too much" above 95 %, "tight" above 85 %, "good" above 60 %, else "has room". */
const char *flim_plan_verdict(const flim_plan *plan, const flim_plan_budget *budget);
/* The components, one per line, and the total; each line through `log` (FLIM_LOG_INFO). */
void flim_plan_table(const flim_plan *plan, const flim_plan_budget *budget, const flim_log *log);
/* The suggestions as a table, and the recommendation. */
void flim_plan_suggestions_table(const flim_suggestions *s, const flim_plan_budget *budget, const flim_log *log);
flim_json *flim_plan_json(const flim_plan *plan, const flim_plan_budget *budget);
flim_json *flim_plan_suggestions_json(const flim_suggestions *s, const flim_plan_budget *budget);

#endif
