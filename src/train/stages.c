/* The stages of a run: whose settings are the run's at the moment, and the program that they need.
 *
 * A run without stages is one training, with the run's own settings; a stage's settings take their place while it trains.
 */
#include <inttypes.h>

#include "backend/backend.h"
#include "core/bytes.h"
#include "core/try.h"
#include "core/text.h"
#include "plan/plan.h"
#include "train/run.h"

flim_status flim_run_read_stages(flim_run *run, flim_error *err)
{
    run->base = run->adjusted;
    return flim_stages_read(run->settings, &run->stages, &run->n_stages, err);
}

void flim_run_free_stages(flim_run *run)
{
    flim_stages_free(run->stages, run->n_stages);
    run->stages = NULL;
    run->n_stages = 0;
}

int64_t flim_run_epochs_before(const flim_run *run, int stage)
{
    int64_t epochs = 0;
    for (int i = 0; i < stage && i < run->n_stages; i++) {
        epochs += run->stages[i].settings.epochs;
    }
    return epochs;
}

int64_t flim_run_epochs(const flim_run *run)
{
    return run->n_stages > 0 ? flim_run_epochs_before(run, run->n_stages) : run->settings->epochs;
}

/* Whether one program serves both. */
static bool same_program(const flim_settings *a, const flim_settings *b)
{
    return a->batch == b->batch && a->eval_batch == b->eval_batch && a->precision == b->precision &&
           a->checkpoint_activations == b->checkpoint_activations && (a->ema > 0) == (b->ema > 0) &&
           (a->mixup == FLIM_MIXUP_NONE) == (b->mixup == FLIM_MIXUP_NONE) && a->benchmark == b->benchmark &&
           a->deterministic == b->deterministic && flim_string_list_equal(&a->augment, &b->augment);
}

/* The settings become the run's; the program is made anew if they need another one. */
static flim_status take_settings(flim_run *run, const flim_study *study, flim_trainer *trainer, const flim_settings *settings,
                                 flim_error *err)
{
    const flim_settings before =
        run->compiled; /* not the run's own: the program may be that of the fold before's last stage */
    run->adjusted = *settings; /* texts and lists stay with their owner */
    trainer->precision = flim_device_precision(flim_device_get_info(trainer->device), settings->precision);
    FLIM_TRY(flim_device_check_precision(trainer->device, trainer->precision, err));
    trainer->net.head[0].loss =
        settings->mixup != FLIM_MIXUP_NONE ? FLIM_LOSS_SOFT_TARGETS : flim_class_loss(trainer->net.classes);
    trainer->accumulate = settings->accumulate;
    if (!flim_string_list_equal(&before.augment, &settings->augment)) {
        FLIM_TRY(flim_run_read_augmentation(run, study, err));
    }
    FLIM_TRY(flim_run_check_recipe(run, study, err));
    flim_run_scale_learning_rate(run, study, trainer);
    return same_program(&before, settings) ? FLIM_OK : flim_run_make_program(run, study, trainer, true, err);
}

flim_status flim_run_enter_stage(flim_run *run, const flim_study *study, flim_trainer *trainer, int stage, flim_error *err)
{
    if (run->n_stages == 0) {
        return FLIM_OK;
    }
    FLIM_TRY(take_settings(run, study, trainer, &run->stages[stage].settings, err));
    const flim_settings *s = run->settings;
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Stage %s (%d of %d): at most %" PRId64 " epoch%s, batch %" PRId64 " x %" PRId64 ", lr %g, %s%s",
                  run->stages[stage].name, stage + 1, run->n_stages, s->epochs, flim_s(s->epochs), s->batch, s->accumulate,
                  trainer->learning_rate, flim_precision_name(trainer->precision),
                  stage > 0 ? "; from the best weights of the stage before, with a fresh optimizer" : "");
    return FLIM_OK;
}

void flim_run_leave_stages(flim_run *run)
{
    if (run->n_stages > 0) {
        run->adjusted = run->base;
    }
}

flim_status flim_run_plan_stages(const flim_run *run, const flim_trainer *trainer, flim_error *err)
{
    const flim_plan_budget budget = flim_run_budget(run, trainer);
    for (int i = 0; i < run->n_stages; i++) {
        flim_plan plan;
        flim_plan_request request =
            flim_plan_request_of(&run->stages[i].settings, &trainer->net, flim_device_get_info(trainer->device));
        request.benchmark = false;
        FLIM_TRY(flim_device_check_precision(trainer->device, request.precision, err));
        FLIM_TRY(flim_plan_make(trainer->device, &request, &budget, &plan, err));
        const bool fits = flim_plan_fits(&plan, &budget);
        flim_log_line(&run->log, fits ? FLIM_LOG_INFO : FLIM_LOG_WARNING, "Stage %s: %.2f GiB planned before tuning%s",
                      run->stages[i].name, flim_gib(plan.bounded_bytes),
                      fits ? "" : "; that is more than plans may fill (--margin)");
    }
    return FLIM_OK;
}
