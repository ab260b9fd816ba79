#include "train/evaluation.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
#include "core/try.h"
#include "flim/metrics.h"
#include "flim/weights.h"

/* A pass at work: one view of every cell. */
typedef struct pass {
    flim_trainer *trainer;
    const flim_evaluation *evaluation;
    float *logits; /* (n,K') */
    int64_t done, n;
    int view, views;
    double begun; /* when the first view did */
} pass;

static flim_status predict_batch(void *context, const flim_batch *batch, flim_error *err)
{
    pass *p = context;
    const flim_head *head = &p->trainer->net.head[0];
    float *pooled = p->evaluation->pooled && p->view == 0 ? p->evaluation->pooled + p->done * head->in_channels : NULL;
    float *logits = p->logits + p->done * head->outputs;
    p->done += batch->n;
    FLIM_TRY(flim_program_predict(p->trainer->program, batch, logits, err));
    return pooled ? flim_program_read_pooled(p->trainer->program, 0, pooled, batch->n * head->in_channels, err) : FLIM_OK;
}

static flim_status after_batch(void *context, flim_error *err)
{
    const pass *p = context;
    const flim_train_hooks *hooks = p->evaluation->hooks;
    flim_telemetry_update(&p->trainer->telemetry, p->trainer->device);
    const int64_t batch = p->trainer->eval_batch;
    if (hooks->progress) {
        flim_progress at = p->evaluation->at;
        const int64_t batches = (p->n + batch - 1) / batch; /* of a view */
        at.done = p->view * batches + (p->done + batch - 1) / batch;
        at.total = p->views * batches;
        at.cells = p->view * p->n + p->done;
        at.seconds = flim_seconds() - p->begun;
        at.loss = NAN;
        hooks->progress(hooks->context, &at);
    }
    return flim_stopped(hooks->stop) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK;
}

static flim_status finish(void *context, flim_error *err)
{
    return flim_program_wait(((pass *)context)->trainer->program, err);
}

/* The cells of p in p's view. */
static flim_status run_view(pass *p, const flim_draw *draws, flim_error *err)
{
    static const flim_phase_work work = {predict_batch, after_batch, finish};
    flim_phase phase = {.draws = draws, .n_draws = p->n, .batch = p->trainer->eval_batch};
    if (p->view > 0) { /* 0 is the cell as it is */
        phase.transform = (flim_transform){.n = 1, .step = {{FLIM_TRANSFORM_DIHEDRAL, 1, p->view, p->view}}};
    }
    p->done = 0;
    return flim_trainer_run_phase(p->trainer, &phase, &work, p, err);
}

/* All views of p, their mean in p->logits (values of them). */
static flim_status run_views(pass *p, const flim_draw *draws, size_t values, flim_error *err)
{
    flim_status status = FLIM_OK;
    double *sum = flim_alloc(values, sizeof *sum, err);
    FLIM_TRY_DONE(sum ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (p->view = 0; p->view < p->views; p->view++) {
        FLIM_TRY_DONE(run_view(p, draws, err));
        for (size_t i = 0; i < values; i++) {
            sum[i] += (double)p->logits[i];
        }
    }
    for (size_t i = 0; i < values; i++) {
        p->logits[i] = (float)(sum[i] / p->views);
    }
done:
    flim_free(sum);
    return status;
}

/* Of a plane (h,w), those that keep its shape; FLIM_TRANSFORM_DIHEDRAL numbers them from 0. */
static int symmetries(int h, int w)
{
    return h == w ? 8 : 4;
}

/* The cells of evaluation batch number `batch`: from *from, this many. */
static int64_t batch_cells(const flim_trainer *trainer, int64_t n, int64_t batch, int64_t *from)
{
    *from = batch * trainer->eval_batch;
    return n - *from < trainer->eval_batch ? n - *from : trainer->eval_batch;
}

/* Cells of rank r: of each `ranks` batches the r-th, so that batches are those of a process alone. */
static int64_t share_of(const flim_trainer *trainer, int64_t n, int rank)
{
    const int64_t batches = (n + trainer->eval_batch - 1) / trainer->eval_batch;
    int64_t cells = 0, from;
    for (int64_t b = rank; b < batches; b += flim_ranks_size(trainer->ranks)) {
        cells += batch_cells(trainer, n, b, &from);
    }
    return cells;
}

/* All logits (n,K') from those of each rank, all (ranks,room). */
static void merge(const flim_trainer *trainer, int64_t n, const float *all, size_t room, float *logits)
{
    const int64_t batches = (n + trainer->eval_batch - 1) / trainer->eval_batch, outputs = trainer->net.head[0].outputs;
    const int64_t ranks = flim_ranks_size(trainer->ranks);
    for (int64_t b = 0; b < batches; b++) {
        int64_t from;
        const int64_t cells = batch_cells(trainer, n, b, &from), before = b / ranks * trainer->eval_batch;
        memcpy(logits + from * outputs, all + (size_t)(b % ranks) * room + before * outputs,
               (size_t)(cells * outputs) * sizeof *logits);
    }
}

static flim_status evaluate(pass *p, const int64_t *cell, flim_error *err)
{
    const flim_network *net = &p->trainer->net;
    flim_draw *draws = flim_alloc((size_t)p->n, sizeof *draws, err); /* (n) */
    if (!draws) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < p->n; i++) {
        draws[i] = (flim_draw){.cell = (uint32_t)cell[i], .weight = 1.0f};
    }
    const flim_status status =
        p->views == 1 ? run_view(p, draws, err) : run_views(p, draws, (size_t)(p->n * net->head[0].outputs), err);
    flim_free(draws);
    return status;
}

/* What each rank does: its share, then all shares together. */
static flim_status evaluate_share(pass *p, const int64_t *cell, int64_t n, float *logits, flim_error *err)
{
    const flim_trainer *trainer = p->trainer;
    const int ranks = flim_ranks_size(trainer->ranks), rank = flim_ranks_rank(trainer->ranks);
    const size_t room = (size_t)(share_of(trainer, n, 0) * trainer->net.head[0].outputs); /* of rank 0: the most */
    flim_status status = FLIM_OK;
    p->n = share_of(trainer, n, rank);
    int64_t *own = flim_alloc((size_t)p->n, sizeof *own, err), taken = 0, from; /* (p->n) */
    float *all = flim_alloc(room * (size_t)ranks, sizeof *all, err); /* (ranks, room) */
    p->logits = flim_alloc(room, sizeof *p->logits, err);
    status = own && all && p->logits ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int64_t b = rank; status == FLIM_OK && taken < p->n; b += ranks) {
        const int64_t cells = batch_cells(trainer, n, b, &from);
        memcpy(own + taken, cell + from, (size_t)cells * sizeof *own);
        taken += cells;
    }
    status = status == FLIM_OK ? evaluate(p, own, err) : status;
    FLIM_TRY_DONE(flim_ranks_settle(trainer->ranks, status, err));
    FLIM_TRY_DONE(flim_ranks_gather(trainer->ranks, p->logits, room * sizeof *all, all, err));
    merge(trainer, n, all, room, logits);
done:
    flim_free(own);
    flim_free(all);
    flim_free(p->logits);
    return status;
}

static flim_status tell_evaluate(const flim_trainer *trainer, bool tta, const int64_t *cell, int64_t n, flim_error *err)
{
    flim_order order = {.kind = FLIM_ORDER_EVALUATE};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_order_put(&order, &tta, sizeof tta, err));
    FLIM_TRY_DONE(flim_order_put(&order, &n, sizeof n, err));
    FLIM_TRY_DONE(flim_order_put(&order, cell, (size_t)n * sizeof *cell, err));
    status = flim_order_send(trainer->ranks, &order, err);
done:
    flim_order_free(&order);
    return status;
}

flim_status flim_trainer_evaluate(flim_trainer *trainer, const flim_evaluation *evaluation, const int64_t *cell, int64_t n,
                                  float *logits, flim_error *err)
{
    const flim_network *net = &trainer->net;
    pass p = {.trainer = trainer,
              .evaluation = evaluation,
              .logits = logits,
              .n = n,
              .views = evaluation->tta ? symmetries(net->in[1], net->in[2]) : 1,
              .begun = flim_seconds()};
    if (flim_ranks_size(trainer->ranks) == 1) {
        return evaluate(&p, cell, err);
    }
    FLIM_TRY(flim_leads(trainer->ranks) ? tell_evaluate(trainer, evaluation->tta, cell, n, err) : FLIM_OK);
    return evaluate_share(&p, cell, n, logits, err);
}

flim_status flim_trainer_follow_evaluation(flim_trainer *trainer, flim_order *order, flim_error *err)
{
    static const flim_train_hooks nobody = {0};
    flim_evaluation evaluation = {.hooks = &nobody};
    flim_status status = FLIM_OK;
    int64_t n = 0, *cell = NULL;
    float *logits = NULL;
    bool ready = false;
    FLIM_TRY_DONE(flim_order_take(order, &evaluation.tta, sizeof evaluation.tta, err));
    FLIM_TRY_DONE(flim_order_take(order, &n, sizeof n, err));
    cell = flim_alloc((size_t)n, sizeof *cell, err); /* (n) */
    logits = flim_alloc((size_t)(n * trainer->net.head[0].outputs), sizeof *logits, err); /* (n,K') */
    FLIM_TRY_DONE(cell && logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_order_take(order, cell, (size_t)n * sizeof *cell, err));
    ready = true;
    status = flim_trainer_evaluate(trainer, &evaluation, cell, n, logits, err);
done:
    if (!ready) {
        status = flim_ranks_settle(trainer->ranks, status, err); /* the others wait to hear how it went */
    }
    flim_free(cell);
    flim_free(logits);
    return status;
}

flim_status flim_predictions_of(const flim_dataset_info *info, int classes, const int64_t *cell, int64_t n,
                                const float *logits, double threshold, flim_predictions *out, flim_error *err)
{
    flim_status status = flim_predictions_create(n, classes, out, err);
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        const float *z = logits + i * out->outputs; /* (K') */
        const int64_t c = cell[i];
        out->index[i] = c;
        out->label[i] = info->label ? info->label[c] : -1;
        out->predicted[i] = flim_predicted_class(classes, z, threshold);
        memcpy(out->logits + i * out->outputs, z, (size_t)out->outputs * sizeof *z);
        out->name[i] = flim_strdup(info->name ? info->name[c] : "", err);
        out->group[i] = flim_strdup(info->group ? info->group_name[info->group[c]] : "", err);
        if (!out->name[i] || !out->group[i]) {
            status = FLIM_ERROR_MEMORY;
        }
    }
    if (status != FLIM_OK) {
        flim_predictions_free(out);
    }
    return status;
}

/* ---- ensembles ---- */

flim_status flim_ensemble_create(const flim_trainer *trainer, int classes, int64_t n, flim_ensemble *out, flim_error *err)
{
    const flim_network *net = &trainer->net;
    const size_t cells = (size_t)n;
    *out = (flim_ensemble){.n = n, .classes = classes};
    out->parameter = flim_alloc((size_t)net->parameters, sizeof(float), err);
    out->statistic = flim_alloc((size_t)net->statistics, sizeof(float), err);
    out->logits = flim_alloc(cells * (size_t)net->head[0].outputs, sizeof(float), err);
    out->one = flim_alloc(cells * (size_t)classes, sizeof(double), err);
    out->sum = flim_alloc(cells * (size_t)classes, sizeof(double), err);
    return out->parameter && out->statistic && out->logits && out->one && out->sum ? FLIM_OK : FLIM_ERROR_MEMORY;
}

void flim_ensemble_free(flim_ensemble *e)
{
    flim_free(e->parameter);
    flim_free(e->statistic);
    flim_free(e->logits);
    flim_free(e->one);
    flim_free(e->sum);
    *e = (flim_ensemble){0};
}

flim_status flim_ensemble_load(flim_ensemble *e, flim_trainer *trainer, const char *path, flim_error *err)
{
    e->models++;
    FLIM_TRY(flim_weights_read(path, &trainer->net, e->parameter, e->statistic, err));
    return flim_trainer_load(trainer, e->parameter, e->statistic, err);
}

flim_status flim_ensemble_add(flim_ensemble *e, flim_trainer *trainer, const flim_evaluation *evaluation, const int64_t *cell,
                              flim_error *err)
{
    FLIM_TRY(flim_trainer_evaluate(trainer, evaluation, cell, e->n, e->logits, err));
    flim_probabilities(e->n, e->classes, e->logits, e->one);
    for (int64_t i = 0; i < e->n * e->classes; i++) {
        e->sum[i] += e->one[i];
    }
    return FLIM_OK;
}

void flim_ensemble_mean(flim_ensemble *e)
{
    const double least = 1e-30; /* of a probability: its logarithm must be finite */
    for (int64_t i = 0; i < e->n; i++) {
        const double *p = e->sum + i * e->classes; /* (K) */
        if (e->classes == 2) {
            e->logits[i] = (float)(log(fmax(p[1] / e->models, least)) - log(fmax(p[0] / e->models, least)));
        }
        for (int k = 0; e->classes > 2 && k < e->classes; k++) {
            e->logits[i * e->classes + k] = (float)log(fmax(p[k] / e->models, least));
        }
    }
}
