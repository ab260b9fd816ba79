/* The answer, first: the network, the best simple model, and how far apart they are. */
#include <ctype.h>
#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { ANSWER_HEIGHT = 260, SENTENCE = 512 };

/* What the answer is of. */
typedef struct answer {
    flim_metric metric; /* ROC AUC; balanced accuracy where that is undefined */
    int simple; /* the best simple model; -1 = there is none */
    const flim_paired_test *test; /* the network less that model, over folds */
} answer;

static answer answer_of(const report_run *run)
{
    double value[FLIM_N_BASELINES][FLIM_N_METRICS];
    const bool ranked = !isnan(report_row_of(run, REPORT_POOLED)->value[FLIM_ROC_AUC]);
    answer out = {.metric = ranked ? FLIM_ROC_AUC : FLIM_BALANCED_ACCURACY};
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        const report_row *row = report_baseline_row(run, b);
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            value[b][m] = row ? row->value[m] : NAN;
        }
    }
    out.simple = flim_best_simple_model(value, out.metric);
    out.test = out.simple < 0 ? NULL : &run->against[out.simple].fold_test[out.metric];
    return out;
}

/* ---- the headline */

/* Whether the network is better than the best simple model, in one sentence; false if it is not shown to be. */
static bool judge(const report_run *run, const answer *a, char text[SENTENCE])
{
    const char *title = flim_metric_title(a->metric);
    const double network = report_row_of(run, REPORT_POOLED)->value[a->metric];
    if (a->simple < 0) {
        snprintf(text, SENTENCE, "The network reaches a pooled %s of %.3f; there is no simple model beside it.", title,
                 network);
        return true;
    }
    const char *simple = flim_baseline_title(a->simple);
    const double value = report_baseline_row(run, a->simple)->value[a->metric];
    const flim_interval *i = &a->test->interval;
    const bool known = !isnan(i->low), better = known && i->low > 0, worse = known && i->high < 0;
    char difference[128] = "";
    if (known) {
        snprintf(difference, sizeof difference, "; mean difference over folds %+.3f, 95 %% interval %+.3f to %+.3f",
                 a->test->difference, i->low, i->high);
    }
    snprintf(text, SENTENCE, "%s the best simple model, %s: pooled %s %.3f against %.3f%s.",
             better             ? "The network is better than"
             : worse            ? "The network is worse than"
             : value >= network ? "The network does no better than"
                                : "The network is not shown to be better than",
             simple, title, network, value, difference);
    return better;
}

/* Where the summed decay does as well, that is the answer. */
static void set_headline(flim_json *values, const report_run *run, const answer *a)
{
    char sentence[SENTENCE], headline[SENTENCE + 4], judgement[SENTENCE];
    const report_row *decay = report_baseline_row(run, FLIM_BASELINE_DECAY);
    const bool suffices =
        decay && flim_decay_suffices(report_row_of(run, REPORT_POOLED)->value, decay->value, sentence, sizeof sentence);
    const bool better = judge(run, a, judgement);
    if (suffices) {
        snprintf(headline, sizeof headline, "%c%s.", toupper((unsigned char)sentence[0]), sentence + 1);
    }
    flim_json_set_string(values, "headline", suffices ? headline : judgement);
    flim_json_set_string(values, "subline", suffices ? judgement : NULL);
    flim_json_set_bool(values, "shown", better && !suffices);
}

/* ---- the picture */

/* Folds as pairs (left) and the mean difference with its interval (right). */
static flim_status plot_answer(flim_json *values, const report_run *run, const answer *a, flim_error *err)
{
    const int folds = run->splits.n_folds;
    const size_t count = (size_t)FLIM_N_METRICS * (size_t)folds;
    flim_status status = FLIM_OK;
    flim_json *plot = plot_begin(ANSWER_HEIGHT), *pairs = flim_json_array();
    double *network = flim_alloc(count, sizeof *network, err), *simple = flim_alloc(count, sizeof *simple, err);
    double mean_network, mean_simple, sd;
    int used;
    FLIM_TRY_DONE(network && simple ? report_fold_values(run, -1, network, err) : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(report_fold_values(run, a->simple, simple, err));
    double *of_network = network + (int)a->metric * folds, *of_simple = simple + (int)a->metric * folds;
    for (int k = 0; k < folds; k++) {
        if (isnan(of_network[k]) || isnan(of_simple[k])) {
            of_network[k] = of_simple[k] = NAN; /* no pair */
            continue;
        }
        flim_json *pair = flim_json_object();
        flim_json_set_number(pair, "simple", of_simple[k]);
        flim_json_set_number(pair, "network", of_network[k]);
        flim_json_add(pairs, pair);
    }
    flim_mean_sd(of_network, folds, &mean_network, &sd, &used);
    flim_mean_sd(of_simple, folds, &mean_simple, &sd, &used);
    flim_json_set_number(plot, "mean_network", mean_network);
    flim_json_set_number(plot, "mean_simple", mean_simple);
    flim_json_set_string(plot, "ylabel", flim_metric_title(a->metric));
    flim_json_set_number(plot, "difference", a->test->difference);
    flim_json_set_number(plot, "low", a->test->interval.low);
    flim_json_set_number(plot, "high", a->test->interval.high);
done:
    flim_free(network);
    flim_free(simple);
    flim_json_set(plot, "pairs", pairs);
    if (status != FLIM_OK) {
        flim_json_free(plot);
        return status;
    }
    return plot_finish(plot, used > 0 ? "answer.gp" : NULL, values, "answer", err);
}

/* ---- numbers and sentences */

static flim_json *card(const report_run *run, flim_metric m)
{
    const double pooled = report_row_of(run, REPORT_POOLED)->value[m], mean = report_row_of(run, REPORT_MEAN)->value[m];
    flim_json *object = flim_json_object(), *folds = flim_json_object();
    flim_json_set_string(object, "what", flim_metric_title(m));
    flim_json_set_number(object, "pooled", pooled);
    flim_json_set_string(object, "undefined", isnan(pooled) ? flim_metric_undefined_reason(m) : NULL);
    html_set_interval(object, "interval", &run->interval[m]);
    flim_json_set_number(folds, "mean", mean);
    flim_json_set_number(folds, "sd", report_row_of(run, REPORT_SD1)->value[m]);
    flim_json_set_integer(folds, "used", run->used[m]);
    if (isnan(mean)) {
        flim_json_free(folds);
        flim_json_set_null(object, "folds");
    } else {
        flim_json_set(object, "folds", folds);
    }
    return object;
}

static void set_cards(flim_json *values, const report_run *run)
{
    static const flim_metric shown[] = {FLIM_ROC_AUC, FLIM_BALANCED_ACCURACY, FLIM_ACCURACY};
    flim_json *cards = flim_json_array(), *simple = flim_json_array();
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        flim_json_add(cards, card(run, shown[i]));
    }
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        const report_row *row = report_baseline_row(run, b);
        if (row) {
            const flim_metric m = isnan(row->value[FLIM_ROC_AUC]) ? FLIM_BALANCED_ACCURACY : FLIM_ROC_AUC;
            flim_json *object = flim_json_object();
            flim_json_set_string(object, "model", flim_baseline_title(b));
            flim_json_set_number(object, "value", row->value[m]);
            flim_json_set_string(object, "metric", flim_metric_title(m));
            flim_json_add(simple, object);
        }
    }
    flim_json_set(values, "cards", cards);
    flim_json_set(values, "simple", simple);
}

static void set_findings(flim_json *values, const report_run *run)
{
    flim_json *warnings = flim_json_array(), *notes = flim_json_array();
    for (int level = FLIM_LOG_WARNING; level >= FLIM_LOG_INFO; level--) {
        for (int i = 0; i < run->n_findings; i++) {
            if ((int)run->finding[i].level == level) {
                flim_json_add_string(level == FLIM_LOG_WARNING ? warnings : notes, run->finding[i].text);
            }
        }
    }
    flim_json_set_integer(values, "n_notes", (int64_t)flim_json_length(notes));
    flim_json_set_bool(values, "any_notes", flim_json_length(notes) > 0);
    flim_json_set(values, "warnings", warnings);
    flim_json_set(values, "notes", notes);
}

flim_status section_summary_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    const report_run *run = subject->run;
    const answer a = answer_of(run);
    set_headline(values, run, &a);
    set_cards(values, run);
    set_findings(values, run);
    flim_json_set_string(values, "simple_model", a.simple < 0 ? NULL : flim_baseline_title(a.simple));
    flim_json_set_string(values, "metric", flim_metric_title(a.metric));
    if (a.simple < 0) {
        flim_json_set_null(values, "answer");
        return FLIM_OK;
    }
    return plot_answer(values, run, &a, err);
}
