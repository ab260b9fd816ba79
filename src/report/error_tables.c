/* The analysis of errors for a terminal. */
#include <inttypes.h>
#include <math.h>

#include "core/text.h"
#include "report/report_internal.h"

enum { MOST_CLASSES = 4, MOST_GROUPS = 10, FIELD = 16, NAME = 128 };

/* A name of at most `columns` characters, padded with blanks. */
static void padded(const char *name, int columns, char out[NAME])
{
    int used = 0;
    size_t bytes = 0;
    for (const char *at = name; *at && used < columns && bytes + 8 < NAME - (size_t)columns; used++) {
        uint32_t code;
        const size_t length = flim_utf8_length(at, &code);
        for (size_t i = 0; i < (length ? length : 1); i++) {
            out[bytes++] = *at++;
        }
    }
    snprintf(out + bytes, NAME - bytes, "%*s", columns - used, "");
}

static const char *fixed(double value, int digits, char text[FIELD])
{
    snprintf(text, FIELD, isnan(value) ? "n/a" : "%.*f", digits, value);
    return text;
}

/* Four significant digits, as a person writes them. */
static const char *plain(double value, char text[FIELD])
{
    const double size = fabs(value);
    return fixed(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3, text);
}

static const char *p_of(double value, char text[FIELD])
{
    return value < 0.001 ? "< 0.001" : fixed(value, 3, text);
}

static void outcomes(const report_run *run, const flim_log *log)
{
    const report_errors *e = run->errors;
    char name[NAME], a[FIELD], b[FIELD], c[FIELD], d[FIELD], f[FIELD];
    flim_log_line(log, FLIM_LOG_INFO, "  errors: %" PRId64 " of %" PRId64 " cells %s wrong", e->wrong, e->cells,
                  flim_verb(e->wrong, "is", "are"));
    flim_log_line(log, FLIM_LOG_INFO, "                                        probability of the predicted class");
    padded(run->classes == 2 ? "    outcome and label" : "    label", 29, name);
    flim_log_line(log, FLIM_LOG_INFO, "%s   cells   mean     sd    min median    max", name);
    for (int k = 0; k < e->n_outcomes; k++) {
        const error_outcome *o = &e->outcome[k];
        const error_range *r = &o->confidence;
        if (run->classes > 2 * MOST_CLASSES && o->right) {
            continue; /* the wrong ones are what is asked for */
        }
        padded(run->class_name[o->label], 18, name);
        flim_log_line(log, FLIM_LOG_INFO, "    %-6s %s %7" PRId64 " %6s %6s %6s %6s %6s", o->kind, name, o->cells,
                      fixed(r->mean, 3, a), fixed(r->sd, 3, b), fixed(r->least, 3, c), fixed(r->median, 3, d),
                      fixed(r->most, 3, f));
    }
}

static void differences(const report_run *run, const flim_log *log)
{
    const report_errors *e = run->errors;
    char a[FIELD], b[FIELD], g[FIELD], p[FIELD], q[FIELD], groups[FIELD * 3];
    int32_t before = ERROR_ALL_CLASSES - 1;
    for (int64_t i = 0; i < e->n_differences; i++) {
        const error_difference *d = &e->difference[i];
        if (d->label >= MOST_CLASSES) {
            flim_log_line(log, FLIM_LOG_INFO, "  further classes: in the files (--json, --csv, --md)");
            break;
        }
        if (d->label != before) {
            const bool all = d->label == ERROR_ALL_CLASSES;
            flim_log_line(log, FLIM_LOG_INFO, "  wrong cells against right ones, %s%s", all ? "all classes" : "label ",
                          all ? "" : run->class_name[d->label]);
            flim_log_line(log, FLIM_LOG_INFO, "    mean of                wrong      right       g       p  p Holm  groups");
            before = d->label;
        }
        snprintf(groups, sizeof groups, d->groups ? "%" PRId64 "/%" PRId64 : "-", d->agree, d->groups);
        flim_log_line(log, FLIM_LOG_INFO, "    %-18s %9s  %9s %7s %7s %7s %7s", error_figure_title(d->figure, e->in_ns),
                      plain(d->wrong.n ? d->wrong.mean : (double)NAN, a), plain(d->right.n ? d->right.mean : (double)NAN, b),
                      fixed(d->test.g, 2, g), p_of(d->test.p, p), p_of(d->p_holm, q), groups);
    }
    if (e->n_differences) {
        flim_log_line(log, FLIM_LOG_INFO, "    g: Hedges' effect size, largest first; p: Welch's t-test of independent");
        flim_log_line(log, FLIM_LOG_INFO,
                      "    cells; p Holm: allows for all %" PRId64 " tests; groups: of those with two wrong and", e->tests);
        flim_log_line(log, FLIM_LOG_INFO, "    two right cells, how many differ in the same direction");
    }
}

static void groups(const report_run *run, const flim_log *log)
{
    const report_errors *e = run->errors;
    const bool two = run->classes == 2;
    char name[NAME], counts[64] = "", a[FIELD], g[FIELD];
    if (e->n_groups == 0) {
        return;
    }
    padded("    group", 18, name);
    flim_log_line(log, FLIM_LOG_INFO, "  errors by group, most first%s", e->n_groups > MOST_GROUPS ? " (10 of them)" : "");
    flim_log_line(log, FLIM_LOG_INFO, "%s cells wrong%s  sure%s", name, two ? "   TP   TN   FP   FN" : "",
                  e->has_figures ? "  differ most in (g)" : "");
    for (int64_t i = 0; i < e->n_groups && i < MOST_GROUPS; i++) {
        const error_group *group = &e->group[i];
        char most[64] = "";
        padded(group->name, 14, name);
        if (two) {
            snprintf(counts, sizeof counts, " %4" PRId64 " %4" PRId64 " %4" PRId64 " %4" PRId64, group->tp, group->tn,
                     group->fp, group->fn);
        }
        if (!isnan(group->g)) {
            snprintf(most, sizeof most, "  %s (%s)", error_figure_title(group->figure, e->in_ns), fixed(group->g, 2, g));
        }
        flim_log_line(log, FLIM_LOG_INFO, "    %s %5" PRId64 " %5" PRId64 "%s %5s%s", name, group->cells, group->wrong,
                      counts, fixed(group->confidence, 3, a), most);
    }
    flim_log_line(log, FLIM_LOG_INFO, "    sure: mean probability of the predicted class over wrong cells");
}

static void fit_row(const report_fit *fit, const flim_log *log)
{
    const report_fit_point *c = &fit->chosen, *l = &fit->last;
    char name[24] = "mean", epoch[FIELD] = "", a[FIELD], b[FIELD], d[FIELD], e[FIELD], f[FIELD], g[FIELD], h[FIELD];
    if (fit->fold >= 0) {
        snprintf(name, sizeof name, "fold %d", fit->fold);
        fixed(c->epoch, 0, epoch);
    }
    flim_log_line(log, FLIM_LOG_INFO, "    %-8s %5s %6s %6s %6s  %6s %6s  %6s %6s  %s%s", name, epoch,
                  fixed(c->train_accuracy, 3, a), fixed(c->val_accuracy, 3, b), fixed(fit->gap, 3, d),
                  fixed(c->train_loss, 3, e), fixed(c->val_loss, 3, f), fixed(l->train_loss, 3, g), fixed(l->val_loss, 3, h),
                  report_fit_name(fit->verdict), fit->later && fit->verdict == REPORT_FIT_SOUND ? "*" : "");
}

static void fits(const report_run *run, const flim_log *log)
{
    const report_errors *e = run->errors;
    bool later = false;
    flim_log_line(log, FLIM_LOG_INFO, "  training against validation");
    flim_log_line(log, FLIM_LOG_INFO, "                   accuracy at epoch       loss there   loss at the end");
    flim_log_line(log, FLIM_LOG_INFO, "             epoch  train    val    gap   train    val   train    val");
    for (int i = 0; i < e->n_fit; i++) {
        fit_row(&e->fit[i], log);
        later = later || (e->fit[i].later && e->fit[i].verdict == REPORT_FIT_SOUND);
    }
    flim_log_line(log, FLIM_LOG_INFO, "    epoch: the chosen one; overfits: the gap is 0.10 or more, and two standard");
    flim_log_line(log, FLIM_LOG_INFO, "    errors; underfits: training accuracy at the end is less than 0.05 above the");
    flim_log_line(log, FLIM_LOG_INFO, "    most common class (%.3f)%s", e->fit[0].common,
                  later ? "; *: it overfits behind the chosen epoch" : "");
    flim_log_line(log, FLIM_LOG_INFO, "  %s", report_fit_advice(&e->fit[e->n_fit - 1]));
}

void error_tables_print(const report_run *run, const flim_log *log)
{
    char verdict[512];
    outcomes(run, log);
    fits(run, log);
    differences(run, log);
    groups(run, log);
    if (run->errors->missing) {
        flim_log_line(log, FLIM_LOG_INFO, "  no photons, lifetimes, ...: %s (name the data with --data)",
                      run->errors->missing);
    }
    error_verdict(run->errors, verdict, sizeof verdict);
    flim_log_line(log, FLIM_LOG_INFO, "  %s", verdict);
}
