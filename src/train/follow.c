#include "train/follow.h"

#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "core/alloc.h"
#include "core/try.h"
#include "data/device_cache.h"
#include "train/epoch.h"
#include "train/order.h"
#include "train/recalibration.h"

/* ---- settings, as texts ---- */

static flim_status put_text(flim_order *order, const char *text, flim_error *err)
{
    const int64_t bytes = (int64_t)strlen(text) + 1;
    FLIM_TRY(flim_order_put(order, &bytes, sizeof bytes, err));
    return flim_order_put(order, text, (size_t)bytes, err);
}

/* *out is the caller's (flim_free). */
static flim_status take_text(flim_order *order, char **out, flim_error *err)
{
    int64_t bytes = 0;
    *out = NULL;
    FLIM_TRY(flim_order_take(order, &bytes, sizeof bytes, err));
    *out = flim_alloc((size_t)bytes, 1, err);
    FLIM_TRY(*out ? FLIM_OK : FLIM_ERROR_MEMORY);
    return flim_order_take(order, *out, (size_t)bytes, err);
}

static flim_status put_row(flim_order *order, const flim_flag_row *row, const flim_settings *settings, flim_error *err)
{
    const flim_string_list *list = row->type == FLIM_VALUE_LIST ? flim_flag_list(row, settings) : NULL;
    const int64_t n = list ? list->n : 1;
    FLIM_TRY(flim_order_put(order, &n, sizeof n, err));
    for (int i = 0; list && i < list->n; i++) {
        FLIM_TRY(put_text(order, list->item[i], err));
    }
    if (list) {
        return FLIM_OK;
    }
    char *text = flim_flag_text(row, settings, err);
    const flim_status status = text ? put_text(order, text, err) : FLIM_ERROR_MEMORY;
    flim_free(text);
    return status;
}

static flim_status take_row(flim_order *order, const flim_flag_row *row, flim_settings *settings, flim_error *err)
{
    int64_t n = 0;
    FLIM_TRY(flim_order_take(order, &n, sizeof n, err));
    flim_flag_clear(row, settings);
    for (int64_t i = 0; i < n; i++) {
        char *text = NULL;
        flim_status status = take_text(order, &text, err);
        status = status == FLIM_OK ? flim_flag_set(row, settings, row->name, text, err) : status;
        flim_free(text);
        FLIM_TRY(status);
    }
    return FLIM_OK;
}

/* ---- rank 0 ---- */

flim_status flim_lead_begin(const flim_run *run, const flim_trainer *trainer, flim_error *err)
{
    flim_order order = {.kind = FLIM_ORDER_BEGIN};
    flim_status status = FLIM_OK;
    if (!flim_leads(trainer->ranks)) { /* in a dry run there is not even a device */
        return FLIM_OK;
    }
    const flim_cache cache = flim_run_cache_of_data(run, trainer);
    const char *kind = flim_device_get_info(trainer->device)->kind;
    FLIM_TRY_DONE(put_text(&order, kind, err));
    FLIM_TRY_DONE(flim_order_put(&order, &cache, sizeof cache, err));
    for (int i = 0; i < flim_settings_table.n; i++) {
        FLIM_TRY_DONE(put_row(&order, &flim_settings_table.row[i], run->settings, err));
    }
    FLIM_TRY_DONE(flim_order_send(trainer->ranks, &order, err));
    FLIM_TRY_DONE(flim_ranks_settle(trainer->ranks, FLIM_OK, err));
    status = flim_trainer_check_cards(trainer, err);
done:
    flim_order_free(&order);
    return status;
}

flim_status flim_lead_end(const flim_run *run, flim_error *err)
{
    return flim_leads(run->ranks) ? flim_order_send_one(run->ranks, FLIM_ORDER_END, NULL, 0, err) : FLIM_OK;
}

/* ---- the others ---- */

typedef struct follower {
    flim_ranks *ranks;
    flim_settings settings;
    flim_trainer trainer;
    flim_study study;
    flim_program_options options; /* of the last program */
} follower;

static flim_status open_all(follower *f, flim_order *order, flim_error *err)
{
    char device[32], *kind = NULL;
    flim_cache cache;
    FLIM_TRY(take_text(order, &kind, err));
    flim_device_of_rank(f->ranks, kind, device, sizeof device);
    flim_free(kind);
    FLIM_TRY(flim_order_take(order, &cache, sizeof cache, err));
    for (int i = 0; i < flim_settings_table.n; i++) {
        FLIM_TRY(take_row(order, &flim_settings_table.row[i], &f->settings, err));
    }
    FLIM_TRY(flim_trainer_create(device, f->settings.precision, NULL, &f->trainer, err));
    f->trainer.ranks = f->ranks;
    return flim_study_open(&f->study, &f->settings, cache, flim_ranks_local_size(f->ranks), NULL, NULL, err);
}

static flim_status begin(follower *f, flim_order *order, flim_error *err)
{
    FLIM_TRY(flim_ranks_settle(f->ranks, open_all(f, order, err), err));
    return flim_trainer_check_cards(&f->trainer, err);
}

static flim_status compile(follower *f, flim_order *order, flim_error *err)
{
    FLIM_TRY(flim_order_take(order, &f->trainer.precision, sizeof f->trainer.precision, err));
    FLIM_TRY(flim_order_take(order, &f->trainer.net, sizeof f->trainer.net, err));
    FLIM_TRY(flim_order_take(order, &f->options, sizeof f->options, err));
    flim_trainer_drop(&f->trainer);
    return flim_trainer_compile(&f->trainer, &f->options, err);
}

static flim_status fill(follower *f, const flim_loader_options *loader, flim_error *err)
{
    const flim_status status =
        flim_device_cache_fill(f->trainer.program, f->study.dataset, f->trainer.cache_widths, loader->workers, NULL, err);
    flim_dataset_drop_cache(f->study.dataset);
    return status;
}

static flim_status plan_cells(follower *f, flim_order *order, flim_error *err)
{
    const size_t n = (size_t)f->study.info->n;
    f->trainer.cache_widths = flim_alloc(n, 1, err);
    FLIM_TRY(f->trainer.cache_widths ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(flim_order_take(order, f->trainer.cache_widths, n, err));
    return flim_device_cache_plan(f->trainer.program, f->study.dataset, f->trainer.cache_widths, err);
}

/* Rank 0 tries once more, without cells on the device: from a program that has none. */
static flim_status begin_anew(follower *f, flim_error *err)
{
    flim_program_options options = f->options;
    options.ranks = f->ranks;
    flim_trainer_drop(&f->trainer);
    return flim_program_compile(f->trainer.device, &f->trainer.net, &options, &f->trainer.program, err);
}

static flim_status prepare(follower *f, flim_order *order, flim_loader_options *loader, flim_error *err)
{
    FLIM_TRY(flim_order_take(order, loader, sizeof *loader, err));
    loader->device = f->trainer.device;
    FLIM_TRY(f->trainer.loader || f->trainer.cache_widths ? begin_anew(f, err) : FLIM_OK);
    return loader->device_cached ? plan_cells(f, order, err) : FLIM_OK;
}

static flim_status allocate(follower *f, flim_order *order, flim_error *err)
{
    flim_loader_options loader = {0};
    const flim_status planned = prepare(f, order, &loader, err);
    if (planned != FLIM_OK) {
        return flim_ranks_settle(f->ranks, planned, err); /* in place of flim_trainer_allocate's first */
    }
    FLIM_TRY(flim_trainer_allocate(&f->trainer, f->study.dataset, &loader, err));
    return loader.device_cached ? flim_ranks_settle(f->ranks, fill(f, &loader, err), err) : FLIM_OK;
}

static flim_status write(follower *f, flim_order *order, flim_error *err)
{
    flim_state state;
    FLIM_TRY(flim_order_take(order, &state, sizeof state, err));
    const size_t bytes = order->used - order->at;
    float *values = flim_alloc(bytes, 1, err); /* the state's */
    flim_status status = values ? flim_order_take(order, values, bytes, err) : FLIM_ERROR_MEMORY;
    status = status == FLIM_OK ? flim_trainer_write(&f->trainer, state, values, err) : status;
    flim_free(values);
    return status;
}

static flim_status take_counters(follower *f, flim_order *order, flim_error *err)
{
    flim_counters counters;
    FLIM_TRY(flim_order_take(order, &counters, sizeof counters, err));
    return flim_trainer_set_counters(&f->trainer, &counters, err);
}

static flim_status take_totals(follower *f, flim_order *order, flim_error *err)
{
    flim_totals totals;
    FLIM_TRY(flim_order_take(order, &totals, sizeof totals, err));
    return flim_trainer_set_totals(&f->trainer, &totals, err);
}

static flim_status exchange(follower *f, flim_order *order, flim_error *err)
{
    (void)order;
    return flim_trainer_exchange_average(&f->trainer, err);
}

static flim_status epoch(follower *f, flim_order *order, flim_error *err)
{
    return flim_trainer_follow_epoch(&f->trainer, order, err);
}

static flim_status recalibrate(follower *f, flim_order *order, flim_error *err)
{
    return flim_trainer_follow_recalibration(&f->trainer, order, err);
}

static flim_status evaluate(follower *f, flim_order *order, flim_error *err)
{
    return flim_trainer_follow_evaluation(&f->trainer, order, err);
}

/* What follows each order; shared: it ends with the same status for all, which is rank 0's to report. */
static const struct {
    flim_status (*carry_out)(follower *f, flim_order *order, flim_error *err);
    bool shared;
} orders[] = {[FLIM_ORDER_BEGIN] = {begin, true},
              [FLIM_ORDER_COMPILE] = {compile, true},
              [FLIM_ORDER_ALLOCATE] = {allocate, true},
              [FLIM_ORDER_WRITE] = {write, false},
              [FLIM_ORDER_COUNTERS] = {take_counters, false},
              [FLIM_ORDER_TOTALS] = {take_totals, false},
              [FLIM_ORDER_EXCHANGE] = {exchange, false},
              [FLIM_ORDER_EPOCH] = {epoch, false},
              [FLIM_ORDER_RECALIBRATE] = {recalibrate, false},
              [FLIM_ORDER_EVALUATE] = {evaluate, true}};

/* What batches are trained in ends for all ranks alike with these. */
static bool is_shared(flim_order_kind kind, flim_status status)
{
    return orders[kind].shared || ((kind == FLIM_ORDER_EPOCH || kind == FLIM_ORDER_RECALIBRATE) &&
                                   (status == FLIM_INTERRUPTED || status == FLIM_ERROR_NONFINITE));
}

static flim_status follow(follower *f, flim_error *err)
{
    for (;;) {
        flim_order order;
        flim_status status = flim_order_receive(f->ranks, &order, err);
        const flim_order_kind kind = order.kind;
        if (status != FLIM_OK || kind == FLIM_ORDER_END) {
            flim_order_free(&order);
            return status;
        }
        status = orders[kind].carry_out(f, &order, err);
        flim_order_free(&order);
        if (status != FLIM_OK && !is_shared(kind, status)) {
            return status;
        }
    }
}

flim_status flim_follow(flim_ranks *ranks, flim_error *err)
{
    follower f = {.ranks = ranks};
    FLIM_TRY(flim_settings_init(&f.settings, err));
    const flim_status status = follow(&f, err);
    if (status != FLIM_OK) {
        flim_ranks_break(ranks);
        flim_fail_prefix(err, "rank %d of %d (on %s): ", flim_ranks_rank(ranks), flim_ranks_size(ranks),
                         flim_ranks_host(ranks));
    }
    flim_trainer_destroy(&f.trainer);
    flim_study_close(&f.study);
    flim_settings_free(&f.settings);
    return status;
}
