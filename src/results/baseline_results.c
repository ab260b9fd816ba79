#include "results/baseline_results.h"

#include <inttypes.h>
#include <math.h>

#include "core/file.h"
#include "core/try.h"

static const struct {
    const char *name, *title;
} baselines[FLIM_N_BASELINES] = {{"class_prior", "class prior"},
                                 {"confounds", "brightness, size, peak bin"},
                                 {"decay", "summed decay (logistic regression)"}};

const char *flim_baseline_name(int baseline)
{
    return baselines[baseline].name;
}

const char *flim_baseline_title(int baseline)
{
    return baselines[baseline].title;
}

flim_status flim_baseline_read(const char *run_folder, int baseline, const flim_pool *pool, flim_predictions *out,
                               bool *found, flim_error *why, flim_error *err)
{
    char path[FLIM_FILE_PATH];
    *out = (flim_predictions){0};
    *found = false;
    snprintf(path, sizeof path, "%.4000s/baseline_%s.csv", run_folder, baselines[baseline].name);
    if (!flim_file_exists(path)) {
        flim_fail(why, FLIM_ERROR_DATA, "there is no %s", path);
        return FLIM_OK;
    }
    FLIM_TRY(flim_predictions_read(path, out, err));
    bool same = out->n == pool->n && out->classes == pool->classes;
    for (int64_t i = 0; same && i < pool->n; i++) {
        same = out->index[i] == pool->cell[i] && out->label[i] == pool->label[i];
    }
    if (!same) {
        flim_predictions_free(out);
        flim_fail(why, FLIM_ERROR_DATA, "%s has other cells or labels than the finished folds", path);
    }
    *found = same;
    return FLIM_OK;
}

/* What a network and a simple model are compared by: their pooled AUC if both have one, else their balanced accuracy. */
static flim_metric compared_by(const double network[FLIM_N_METRICS], const double simple[FLIM_N_METRICS])
{
    const bool ranked = !isnan(network[FLIM_ROC_AUC]) && !isnan(simple[FLIM_ROC_AUC]);
    return ranked ? FLIM_ROC_AUC : FLIM_BALANCED_ACCURACY;
}

bool flim_confounds_suffice(int classes, const double network[FLIM_N_METRICS], const double confounds[FLIM_N_METRICS],
                            char *sentence, size_t bytes)
{
    const double share = 0.8, clear = 0.1;
    const flim_metric m = compared_by(network, confounds);
    const double chance = m == FLIM_ROC_AUC ? 0.5 : 1.0 / classes;
    if (!(confounds[m] - chance >= share * (network[m] - chance) && confounds[m] >= chance + clear)) {
        return false;
    }
    snprintf(sentence, bytes,
             "brightness, cell size and peak bin alone reach a pooled %s of %.3f, the network %.3f: it may have learned "
             "nothing beyond these",
             flim_metric_title(m), confounds[m], network[m]);
    return true;
}

bool flim_decay_suffices(const double network[FLIM_N_METRICS], const double decay[FLIM_N_METRICS], char *sentence,
                         size_t bytes)
{
    const double clear = 0.05;
    const flim_metric m = compared_by(network, decay);
    if (!(decay[m] >= network[m])) { /* undefined: neither is */
        return false;
    }
    snprintf(sentence, bytes,
             "a logistic regression on the summed decay does %s the network: pooled %s %.3f, "
             "the network %.3f",
             decay[m] - network[m] >= clear ? "better than" : "as well as", flim_metric_title(m), decay[m], network[m]);
    return true;
}

int flim_best_simple_model(const double baseline[FLIM_N_BASELINES][FLIM_N_METRICS], flim_metric metric)
{
    int best = -1;
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        if (!isnan(baseline[b][metric]) && (best < 0 || baseline[b][metric] > baseline[best][metric])) {
            best = b;
        }
    }
    return best;
}
