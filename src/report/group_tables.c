/* What is by group: numbers, the table, and groups that stand on both sides of a split. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"
#include "report/report_internal.h"
#include "flim/network.h"

flim_status report_number_groups(report_run *run, flim_error *err)
{
    size_t n = (size_t)run->pool.n;
    const char *const *group = run->pool.group_of;
    run->group_name = flim_alloc(n, sizeof *run->group_name, err);
    run->group_of = flim_alloc(n, sizeof *run->group_of, err);
    if (!run->group_name || !run->group_of) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        if (!group[i][0]) {
            return FLIM_OK; /* a cell has no group: none at all */
        }
        run->group_name[i] = group[i];
    }
    qsort(run->group_name, n, sizeof *run->group_name, flim_compare_texts);
    int64_t groups = 0;
    for (size_t i = 0; i < n; i++) {
        if (groups == 0 || strcmp(run->group_name[groups - 1], run->group_name[i]) != 0) {
            run->group_name[groups++] = run->group_name[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        const char **found = bsearch(&group[i], run->group_name, (size_t)groups, sizeof *run->group_name, flim_compare_texts);
        run->group_of[i] = found - run->group_name;
    }
    run->groups = groups;
    return FLIM_OK;
}

static int worst_first(const void *a, const void *b)
{
    const report_group *x = a, *y = b;
    if (x->accuracy != y->accuracy) {
        return x->accuracy < y->accuracy ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

flim_status report_group_rows(report_run *run, flim_error *err)
{
    const flim_pool *p = &run->pool;
    int outputs = flim_class_outputs(run->classes);
    run->group = flim_alloc((size_t)run->groups, sizeof *run->group, err);
    int32_t *label = flim_alloc((size_t)p->n, sizeof *label, err),
            *predicted = flim_alloc((size_t)p->n, sizeof *predicted, err);
    float *logits = flim_alloc((size_t)(p->n * outputs), sizeof *logits, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(run->group && label && predicted && logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t g = 0; g < run->groups; g++) {
        report_group *group = &run->group[g];
        flim_metrics m;
        int64_t n = 0, ones = 0, right = 0;
        for (int64_t i = 0; i < p->n; i++) {
            if (run->group_of[i] == g) {
                label[n] = p->label[i];
                predicted[n] = p->predicted[i];
                memcpy(logits + n * outputs, p->logits + i * outputs, (size_t)outputs * sizeof *logits);
                ones += p->label[i] == 1;
                right += p->label[i] == p->predicted[i];
                n++;
            }
        }
        FLIM_TRY_DONE(flim_metrics_of_decisions(n, run->classes, label, logits, predicted, &m, err));
        *group = (report_group){.name = run->group_name[g],
                                .n = n,
                                .right = right,
                                .prevalence = NAN,
                                .accuracy = m.value[FLIM_ACCURACY],
                                .sensitivity = NAN,
                                .specificity = NAN,
                                .auc = m.value[FLIM_ROC_AUC]};
        if (run->classes == 2) {
            group->prevalence = (double)ones / (double)n;
            group->sensitivity = ones ? m.value[FLIM_RECALL] : NAN;
            group->specificity = ones < n ? m.value[FLIM_SPECIFICITY] : NAN;
        }
    }
    qsort(run->group, (size_t)run->groups, sizeof *run->group, worst_first);
done:
    flim_free(label);
    flim_free(predicted);
    flim_free(logits);
    return status;
}

/* A group tested in more than one fold stands in the training set of one while another tests it. */
flim_status report_find_shared_groups(report_run *run, const flim_log *log, flim_error *err)
{
    const flim_pool *p = &run->pool;
    int *first = flim_alloc((size_t)run->groups, sizeof *first, err);
    bool *shared = flim_alloc((size_t)run->groups, sizeof *shared, err);
    flim_status status = FLIM_OK;
    int64_t count = 0;
    FLIM_TRY_DONE(first && shared ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; run->groups && i < p->n; i++) {
        int *f = &first[run->group_of[i]];
        if (*f && *f != p->fold[i] + 1 && !shared[run->group_of[i]]) {
            shared[run->group_of[i]] = true;
            count++;
        }
        *f = *f ? *f : p->fold[i] + 1;
    }
    run->shared_groups = count;
    if (count) {
        report_find(run, log, FLIM_LOG_WARNING,
                    "mode %s: %" PRId64 " of %" PRId64 " groups have cells in both training and test set of a fold; the "
                    "scores do not estimate performance on unseen groups (donors)",
                    report_mode(run), count, run->groups);
    }
done:
    flim_free(first);
    flim_free(shared);
    return status;
}
