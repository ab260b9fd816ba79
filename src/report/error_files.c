/* The analysis of errors as CSV, JSON and Markdown. */
#include <inttypes.h>
#include <math.h>

#include "core/text.h"
#include "core/try.h"
#include "formats/csv.h"
#include "report/report_internal.h"

static double mean_of(const flim_moments *m)
{
    return m->n ? m->mean : (double)NAN;
}

/* ---- CSV: one row per outcome, difference and group; what a row has not is empty */

static const char csv_head[] =
    "run,row,table,class,group,cells,wrong,tp,tn,fp,fn,confidence_mean,confidence_sd,confidence_min,confidence_median,"
    "confidence_max,wrong_n,wrong_mean,wrong_sd,right_n,right_mean,right_sd,hedges_g,welch_t,df,p,p_holm,groups_compared,"
    "groups_same_direction,fold,epoch,validation_cells,train_loss,val_loss,train_accuracy,val_accuracy,accuracy_gap,gap_se\n";
enum { FIT_FIELDS = 9 };

static void put_reals(FILE *stream, const double *value, int n)
{
    for (int i = 0; i < n; i++) {
        fprintf(stream, isnan(value[i]) ? "," : ",%.9g", value[i]);
    }
}

static void put_count(FILE *stream, int64_t count)
{
    fprintf(stream, ",%" PRId64, count);
}

static void put_empty(FILE *stream, int n)
{
    while (n-- > 0) {
        putc(',', stream);
    }
}

/* The fields that every row begins with: run, row, table, class, group. */
static void begin_row(FILE *stream, const report_run *run, const char *row, const char *table, const char *class,
                      const char *group)
{
    const char *const text[] = {run->folder, row, table, class, group};
    for (int i = 0; i < 5; i++) {
        if (i) {
            putc(',', stream);
        }
        flim_csv_put(stream, text[i]);
    }
}

/* Two rows: at the chosen epoch, and at the last one.  The row's name is the verdict. */
static void csv_fit(FILE *stream, const report_run *run, const report_fit *fit)
{
    const report_fit_point *const point[] = {&fit->chosen, &fit->last};
    for (int i = 0; i < 2; i++) {
        const double values[] = {point[i]->train_loss, point[i]->val_loss, point[i]->train_accuracy, point[i]->val_accuracy};
        begin_row(stream, run, report_fit_name(fit->verdict), i ? "fit at the last epoch" : "fit at the chosen epoch", "",
                  "");
        put_empty(stream, 24);
        if (fit->fold < 0) { /* the mean over folds, whose epochs differ */
            put_empty(stream, 2);
        } else {
            put_count(stream, fit->fold);
            put_reals(stream, &point[i]->epoch, 1);
        }
        put_count(stream, fit->n_val);
        put_reals(stream, values, 4);
        if (i) {
            put_empty(stream, 2);
        } else {
            put_reals(stream, (const double[]){fit->gap, fit->se}, 2);
        }
        putc('\n', stream);
    }
}

static void csv_run(FILE *stream, const report_run *run)
{
    const report_errors *e = run->errors;
    for (int i = 0; i < e->n_outcomes; i++) {
        const error_outcome *o = &e->outcome[i];
        const error_range *r = &o->confidence;
        begin_row(stream, run, o->kind, "outcome", run->class_name[o->label], "");
        put_count(stream, o->cells);
        put_empty(stream, 5);
        put_reals(stream, (const double[]){r->mean, r->sd, r->least, r->median, r->most}, 5);
        put_empty(stream, 13 + FIT_FIELDS);
        putc('\n', stream);
    }
    for (int64_t i = 0; i < e->n_differences; i++) {
        const error_difference *d = &e->difference[i];
        begin_row(stream, run, error_figure_name(d->figure, e->in_ns), "difference",
                  d->label == ERROR_ALL_CLASSES ? "" : run->class_name[d->label], "");
        put_empty(stream, 11);
        put_count(stream, d->wrong.n);
        put_reals(stream, (const double[]){mean_of(&d->wrong), flim_moments_sd(&d->wrong)}, 2);
        put_count(stream, d->right.n);
        put_reals(stream,
                  (const double[]){mean_of(&d->right), flim_moments_sd(&d->right), d->test.g, d->test.t, d->test.df,
                                   d->test.p, d->p_holm},
                  7);
        put_count(stream, d->groups);
        put_count(stream, d->agree);
        put_empty(stream, FIT_FIELDS);
        putc('\n', stream);
    }
    for (int64_t i = 0; i < e->n_groups; i++) {
        const error_group *g = &e->group[i];
        begin_row(stream, run, isnan(g->g) ? "" : error_figure_name(g->figure, e->in_ns), "group", "", g->name);
        put_count(stream, g->cells);
        put_count(stream, g->wrong);
        const int64_t count[] = {g->tp, g->tn, g->fp, g->fn};
        for (int j = 0; j < 4; j++) {
            if (run->classes == 2) {
                put_count(stream, count[j]);
            } else {
                put_empty(stream, 1);
            }
        }
        put_reals(stream, &g->confidence, 1);
        put_empty(stream, 10);
        put_reals(stream, &g->g, 1);
        put_empty(stream, 6 + FIT_FIELDS);
        putc('\n', stream);
    }
    for (int i = 0; i < e->n_fit; i++) {
        csv_fit(stream, run, &e->fit[i]);
    }
}

flim_status error_csv_write(const flim_report *report, const flim_output *output, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(flim_output_begin(output, &writer, err));
    fputs(csv_head, writer.stream);
    for (int i = 0; i < report->n_runs; i++) {
        csv_run(writer.stream, &report->run[i]);
    }
    return flim_file_commit(&writer, err);
}

/* ---- JSON */

static flim_json *outcome_object(const report_run *run, const error_outcome *o)
{
    flim_json *object = flim_json_object(), *confidence = flim_json_object();
    flim_json_set_string(object, "outcome", o->kind);
    flim_json_set_string(object, "class", run->class_name[o->label]);
    flim_json_set_integer(object, "cells", o->cells);
    flim_json_set_number(confidence, "mean", o->confidence.mean);
    flim_json_set_number(confidence, "sd", o->confidence.sd);
    flim_json_set_number(confidence, "min", o->confidence.least);
    flim_json_set_number(confidence, "median", o->confidence.median);
    flim_json_set_number(confidence, "max", o->confidence.most);
    flim_json_set(object, "confidence", confidence);
    return object;
}

static flim_json *moments_object(const flim_moments *moments)
{
    flim_json *object = flim_json_object();
    flim_json_set_integer(object, "n", moments->n);
    flim_json_set_number(object, "mean", mean_of(moments));
    flim_json_set_number(object, "sd", flim_moments_sd(moments));
    return object;
}

static flim_json *difference_object(const report_run *run, const error_difference *d)
{
    flim_json *object = flim_json_object();
    flim_json_set_string(object, "figure", error_figure_name(d->figure, run->errors->in_ns));
    flim_json_set_string(object, "class", d->label == ERROR_ALL_CLASSES ? NULL : run->class_name[d->label]);
    flim_json_set(object, "wrong", moments_object(&d->wrong));
    flim_json_set(object, "right", moments_object(&d->right));
    flim_json_set_number(object, "hedges_g", d->test.g);
    flim_json_set_number(object, "welch_t", d->test.t);
    flim_json_set_number(object, "df", d->test.df);
    flim_json_set_number(object, "p", d->test.p);
    flim_json_set_number(object, "p_holm", d->p_holm);
    flim_json_set_integer(object, "groups_compared", d->groups);
    flim_json_set_integer(object, "groups_same_direction", d->agree);
    return object;
}

static flim_json *group_object(const report_run *run, const error_group *g)
{
    flim_json *object = flim_json_object();
    flim_json_set_string(object, "group", g->name);
    flim_json_set_integer(object, "cells", g->cells);
    flim_json_set_integer(object, "wrong", g->wrong);
    if (run->classes == 2) {
        flim_json_set_integer(object, "tp", g->tp);
        flim_json_set_integer(object, "tn", g->tn);
        flim_json_set_integer(object, "fp", g->fp);
        flim_json_set_integer(object, "fn", g->fn);
    }
    flim_json_set_number(object, "confidence_of_wrong", g->confidence);
    flim_json_set_string(object, "most_different", isnan(g->g) ? NULL : error_figure_name(g->figure, run->errors->in_ns));
    flim_json_set_number(object, "hedges_g", g->g);
    return object;
}

static flim_json *point_object(const report_fit_point *p)
{
    flim_json *object = flim_json_object();
    flim_json_set_number(object, "epoch", p->epoch);
    flim_json_set_number(object, "train_loss", p->train_loss);
    flim_json_set_number(object, "val_loss", p->val_loss);
    flim_json_set_number(object, "train_accuracy", p->train_accuracy);
    flim_json_set_number(object, "val_accuracy", p->val_accuracy);
    return object;
}

static flim_json *fit_object(const report_fit *fit)
{
    flim_json *object = flim_json_object();
    if (fit->fold >= 0) {
        flim_json_set_integer(object, "fold", fit->fold);
    } else {
        flim_json_set_null(object, "fold");
    }
    flim_json_set_integer(object, "validation_cells", fit->n_val);
    flim_json_set(object, "chosen_epoch", point_object(&fit->chosen));
    flim_json_set(object, "last_epoch", point_object(&fit->last));
    flim_json_set_number(object, "most_common_class", fit->common);
    flim_json_set_number(object, "accuracy_gap", fit->gap);
    flim_json_set_number(object, "gap_se", fit->se);
    flim_json_set_bool(object, "overfits_later", fit->later);
    flim_json_set_string(object, "verdict", report_fit_name(fit->verdict));
    flim_json_set_string(object, "advice", report_fit_advice(fit));
    return object;
}

flim_json *error_json(const report_run *run)
{
    const report_errors *e = run->errors;
    char verdict[512];
    flim_json *object = flim_json_object(), *outcomes = flim_json_array(), *differences = flim_json_array(),
              *groups = flim_json_array(), *fits = flim_json_array();
    error_verdict(e, verdict, sizeof verdict);
    for (int i = 0; i < e->n_outcomes; i++) {
        flim_json_add(outcomes, outcome_object(run, &e->outcome[i]));
    }
    for (int64_t i = 0; i < e->n_differences; i++) {
        flim_json_add(differences, difference_object(run, &e->difference[i]));
    }
    for (int64_t i = 0; i < e->n_groups; i++) {
        flim_json_add(groups, group_object(run, &e->group[i]));
    }
    flim_json_set_integer(object, "cells", e->cells);
    flim_json_set_integer(object, "wrong", e->wrong);
    flim_json_set(object, "outcomes", outcomes);
    flim_json_set(object, "differences", differences);
    flim_json_set_integer(object, "tests", e->tests);
    flim_json_set_string(object, "no_differences_because", e->missing);
    flim_json_set(object, "groups", groups);
    flim_json_set_string(object, "verdict", verdict);
    for (int i = 0; i < e->n_fit; i++) {
        flim_json_add(fits, fit_object(&e->fit[i]));
    }
    flim_json_set(object, "training_against_validation", fits);
    flim_json_set_string(object, "training_against_validation_rule", report_fit_rule());
    return object;
}

/* ---- Markdown */

static void put_reals_as_cells(FILE *stream, const double *value, int n)
{
    for (int i = 0; i < n; i++) {
        fprintf(stream, isnan(value[i]) ? " n/a |" : " %.4g |", value[i]);
    }
}

static void markdown_differences(FILE *stream, const report_run *run)
{
    const report_errors *e = run->errors;
    fputs("\n| figure | class | wrong, mean | sd | right, mean | sd | g | t | df | p | p (Holm) | groups |\n"
          "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
          stream);
    for (int64_t i = 0; i < e->n_differences; i++) {
        const error_difference *d = &e->difference[i];
        fprintf(stream, "| %s | ", error_figure_title(d->figure, e->in_ns));
        report_markdown_cell(stream, d->label == ERROR_ALL_CLASSES ? "all" : run->class_name[d->label]);
        fputs(" |", stream);
        put_reals_as_cells(stream,
                           (const double[]){mean_of(&d->wrong), flim_moments_sd(&d->wrong), mean_of(&d->right),
                                            flim_moments_sd(&d->right), d->test.g, d->test.t, d->test.df, d->test.p,
                                            d->p_holm},
                           9);
        fprintf(stream, " %" PRId64 "/%" PRId64 " |\n", d->agree, d->groups);
    }
    fprintf(stream,
            "\ng: Hedges' effect size; p: Welch's t-test, cells taken as independent; p (Holm) allows for all %" PRId64
            " tests; groups: in how many the difference has the same direction.\n",
            e->tests);
}

static void markdown_fits(FILE *stream, const report_errors *e)
{
    fputs("\n| training against validation | chosen epoch | training accuracy | validation accuracy | gap | training loss | "
          "validation loss | "
          "training loss at the end | validation loss at the end | verdict "
          "|\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
          stream);
    for (int i = 0; i < e->n_fit; i++) {
        const report_fit *fit = &e->fit[i];
        const report_fit_point *c = &fit->chosen;
        if (fit->fold < 0) {
            fputs("| mean | |", stream);
        } else {
            fprintf(stream, "| fold %d |", fit->fold);
            put_reals_as_cells(stream, &c->epoch, 1);
        }
        put_reals_as_cells(stream,
                           (const double[]){c->train_accuracy, c->val_accuracy, fit->gap, c->train_loss, c->val_loss,
                                            fit->last.train_loss, fit->last.val_loss},
                           7);
        fprintf(stream, " %s |\n", report_fit_name(fit->verdict));
    }
    fprintf(stream, "\nRule: %s. %s\n", report_fit_rule(), report_fit_advice(&e->fit[e->n_fit - 1]));
}

void error_markdown_write(FILE *stream, const report_run *run)
{
    const report_errors *e = run->errors;
    char verdict[512];
    error_verdict(e, verdict, sizeof verdict);
    fprintf(stream, "\n### Errors\n\n%" PRId64 " of %" PRId64 " cells %s predicted wrongly. ", e->wrong, e->cells,
            flim_verb(e->wrong, "is", "are"));
    report_markdown_cell(stream, verdict);
    fputs("\n\n| outcome | class | cells | probability of the predicted class, mean | sd | min | median | max |\n"
          "|---|---|---:|---:|---:|---:|---:|---:|\n",
          stream);
    for (int i = 0; i < e->n_outcomes; i++) {
        const error_outcome *o = &e->outcome[i];
        const error_range *r = &o->confidence;
        fprintf(stream, "| %s | ", o->kind);
        report_markdown_cell(stream, run->class_name[o->label]);
        fprintf(stream, " | %" PRId64 " |", o->cells);
        put_reals_as_cells(stream, (const double[]){r->mean, r->sd, r->least, r->median, r->most}, 5);
        putc('\n', stream);
    }
    markdown_fits(stream, e);
    if (e->n_differences) {
        markdown_differences(stream, run);
    }
    if (e->missing) {
        fputs("\nNo photons, lifetimes and so on: ", stream);
        report_markdown_cell(stream, e->missing);
        putc('\n', stream);
    }
    if (e->n_groups) {
        fputs("\n| group | cells | wrong | probability of the predicted class over wrong cells | differ most in | g |\n"
              "|---|---:|---:|---:|---|---:|\n",
              stream);
    }
    for (int64_t i = 0; i < e->n_groups; i++) {
        const error_group *g = &e->group[i];
        fputs("| ", stream);
        report_markdown_cell(stream, g->name);
        fprintf(stream, " | %" PRId64 " | %" PRId64 " |", g->cells, g->wrong);
        put_reals_as_cells(stream, &g->confidence, 1);
        fprintf(stream, " %s |", isnan(g->g) ? "" : error_figure_title(g->figure, e->in_ns));
        put_reals_as_cells(stream, &g->g, 1);
        putc('\n', stream);
    }
}
