/* fold_metrics: how well finished runs did, how sure that is, and what simple models reach (report/report.h). */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/tool.h"
#include "core/shell.h"
#include "core/stop.h"
#include "core/try.h"
#include "report/report.h"
#include "results/fold_result.h"
#include "results/repeated.h"

typedef struct options {
    char *explain, *embeddings, *csv, *json, *markdown, *html;
    flim_string_list data;
    int64_t replicates;
    uint64_t seed;
    int64_t every, workers;
    bool pictures, errors, force, watch;
} options;

#define AT(member) offsetof(options, member)
static const flim_flag_row rows[] = {
    {"Output", "csv", FLIM_VALUE_TEXT, AT(csv), "", "FILE",
     .help = "write the table as CSV; with --errors that of the errors", .writes = true},
    {NULL, "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "write everything as JSON", .writes = true},
    {NULL, "md", FLIM_VALUE_TEXT, AT(markdown), "", "FILE", .help = "write the tables as Markdown", .writes = true},
    {NULL, "html", FLIM_VALUE_TEXT, AT(html), "", "FILE", .help = "write one self-contained page with plots (needs gnuplot)",
     .writes = true},
    {NULL, "watch", FLIM_VALUE_SWITCH, AT(watch), "false", NULL,
     .help = "while the runs are at work write the page of --html again and again, which loads itself again"},
    {NULL, "every", FLIM_VALUE_INTEGER, AT(every), "10", "S", .help = "seconds between two pages of --watch",
     .allowed = ">= 1, <= 3600"},
    {NULL, "force", FLIM_VALUE_SWITCH, AT(force), "false", NULL, .help = "overwrite files that fold_metrics has not made"},
    {NULL, "pictures", FLIM_VALUE_SWITCH, AT(pictures), "true", NULL,
     .help = "show misclassified cells on the page; needs the run's data"},
    {NULL, "data", FLIM_VALUE_LIST, AT(data), "", "FILE", .help = "HDF5 file of the run, if it has moved; repeatable"},
    {NULL, "explain", FLIM_VALUE_TEXT, AT(explain), "", "FILE", .help = "show a file of predict --explain with the cells"},
    {NULL, "embeddings", FLIM_VALUE_TEXT, AT(embeddings), "", "FILE",
     .help = "show the principal components of an .h5 file of predict --embeddings of the run's data, and what they have to "
             "do with "
             "class and group"},
    {"Errors", "errors", FLIM_VALUE_SWITCH, AT(errors), "false", NULL,
     .help = "say how sure wrong predictions are and what separates wrong cells from right ones: needs the run's data"},
    {NULL, "workers", FLIM_VALUE_INTEGER, AT(workers), "8", "N", .help = "threads that read the data for --errors",
     .allowed = ">= 1, <= 1024"},
    {"Statistics", "replicates", FLIM_VALUE_INTEGER, AT(replicates), "2000", "N",
     .help = "bootstrap resamples for the confidence intervals; 0 = none", .allowed = ">= 0, <= 1000000"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, AT(seed), "42", "N", .help = "of the bootstrap"},
};
static const flim_example examples[] = {
    {"fold_metrics runs/NAME --html report.html", "a run as a page"},
    {"fold_metrics runs/NAME --json all.json", "the seeds of train_cv --seeds together"},
    {"fold_metrics runs/A runs/B", "two runs on the same cells, compared in pairs"},
    {NULL, NULL},
};
static const flim_flag_table table = {
    "fold_metrics",
    "fold_metrics RUN... [flag]...",
    "Recomputes the metrics of run folders from their predictions and shows them by fold and pooled, with\nintervals, "
    "baselines and groups.  Each further run is compared with the first.",
    rows,
    sizeof rows / sizeof rows[0],
    .operand = "RUN",
    .purpose = "metrics of runs, recomputed from their predictions",
    .examples = examples,
    .see_also = "train_cv(1), predict(1)"};

enum { N_FILES = 4 };
typedef struct file {
    flim_output output;
    flim_status (*write)(const flim_report *, const flim_output *, flim_error *);
} file;

/* Before the work: none of the files is one that must stay, none is named twice.  taken: what the outputs' lists point into. */
static flim_status check_files(const options *o, file files[N_FILES], flim_string_list *taken, bool *alone, flim_error *err)
{
    for (int i = 0; i < o->data.n; i++) {
        FLIM_TRY(flim_string_list_add(taken, o->data.item[i], err));
    }
    for (int i = 0; i < N_FILES; i++) {
        flim_output *output = &files[i].output;
        if (!output->path[0]) {
            continue;
        }
        const bool dash = flim_file_is_standard_output(output->path);
        *alone = *alone || dash;
        output->force = o->force;
        output->input = (const char *const *)taken->item;
        output->n_inputs = taken->n;
        FLIM_TRY(flim_output_check(output, err));
        FLIM_TRY(dash ? FLIM_OK : flim_string_list_add(taken, output->path, err));
    }
    /* The list may have moved; each file may be written over, but not by the next. */
    for (int i = 0; i < N_FILES; i++) {
        files[i].output.input = (const char *const *)taken->item;
        files[i].output.n_inputs = o->data.n;
    }
    return FLIM_OK;
}

/* False if a signal came. */
static bool wait_for(int64_t seconds, const volatile int *stop)
{
    for (int64_t i = 0; i < 10 * seconds && !flim_stopped(stop); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return !flim_stopped(stop);
}

/* How far the runs are. */
typedef struct standing {
    bool complete, has_results;
    const char *abandoned; /* a run that is not complete, while nobody works at any; NULL = none */
} standing;

static bool any_is_worked_at(const flim_string_list *runs)
{
    bool any = false;
    for (int i = 0; i < runs->n; i++) {
        any = any || flim_run_is_worked_at(runs->item[i]);
    }
    return any;
}

/* One page of runs at work, without what costs long: pictures come when the runs are complete. */
static flim_status write_live(const flim_string_list *runs, const flim_report_options *request, int refresh,
                              const flim_output *page, standing *at, flim_error *err)
{
    const bool at_work = any_is_worked_at(runs); /* before they are read: what ends meanwhile is seen the next time */
    flim_report_options live = *request;
    flim_report *report = NULL;
    flim_status status = FLIM_OK;
    live.unfinished = true;
    live.refresh = refresh;
    live.pictures = false;
    live.explanation = NULL;
    live.embeddings = NULL;
    live.log = NULL; /* the last report says it once */
    FLIM_TRY(flim_report_create((const char *const *)runs->item, runs->n, &live, &report, err));
    at->complete = flim_report_is_complete(report);
    at->has_results = flim_report_has_results(report);
    at->abandoned = at->complete || at_work ? NULL : runs->item[flim_report_first_unfinished(report)];
    status = at->complete ? FLIM_OK : flim_report_write_html(report, page, err);
    flim_report_destroy(report);
    return status;
}

/* Until the runs are complete, or one is not and nobody works at any of them: *at tells.  A signal leaves a page that loads itself no
 * more. */
static flim_status watch_runs(const options *o, const flim_string_list *runs, const flim_report_options *request,
                              const flim_output *page, const volatile int *stop, const flim_log *log, standing *at,
                              flim_error *err)
{
    *at = (standing){0};
    if (!o->html[0] || flim_file_is_standard_output(o->html)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--watch needs --html FILE: the page that it writes again and again");
    }
    FLIM_TRY(write_live(runs, request, (int)o->every, page, at, err));
    if (!at->complete && !at->abandoned) {
        flim_log_line(log, FLIM_LOG_INFO, "%s is written again every %d s until the runs are complete; Ctrl-C ends it",
                      o->html, (int)o->every);
    }
    while (!at->complete && !at->abandoned) {
        if (!wait_for(o->every, stop)) {
            FLIM_TRY(write_live(runs, request, 0, page, at, err));
            return flim_fail(err, FLIM_INTERRUPTED, "interrupted");
        }
        FLIM_TRY(write_live(runs, request, (int)o->every, page, at, err));
    }
    if (at->abandoned) {
        FLIM_TRY(write_live(runs, request, 0, page, at, err));
    }
    return FLIM_OK;
}

static void log_abandoned(const standing *at, const flim_log *log)
{
    char run[4096];
    flim_shell_quote(at->abandoned, run, sizeof run);
    flim_log_line(
        log, FLIM_LOG_WARNING,
        "%s is not complete, and no train_cv works at it: this is the last page; resume with: train_cv --resume --out %s",
        at->abandoned, run);
}

/* A folder of train_cv --seeds: what its runs say together. */
static flim_status report_seeds(const options *o, const char *folder, const flim_seeds *seeds, console *screen,
                                flim_error *err)
{
    const flim_log log = console_log(screen);
    const struct {
        flim_output output;
        flim_status (*write)(const flim_repeated *, const flim_output *, flim_error *);
    } files[] = {
        {{.path = o->csv, .kind = "a CSV table of fold_metrics", .begins = FLIM_REPEATED_CSV_BEGINS, .force = o->force},
         flim_repeated_write_csv},
        {{.path = o->json, .kind = "a JSON report of fold_metrics", .begins = FLIM_REPEATED_JSON_BEGINS, .force = o->force},
         flim_repeated_write_json}};
    enum { N = sizeof files / sizeof files[0] };
    flim_repeated result = {0};
    flim_seeds all = *seeds; /* with those that there are to be */
    flim_status status = FLIM_OK;
    bool alone = false; /* standard output is for one of the files */
    if (o->html[0] || o->markdown[0] || o->errors || o->watch || o->embeddings[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s has runs of several seeds: --html, --md, --errors, --embeddings and --watch are of one of them, "
                         "as in %s/seed_%" PRIu64,
                         folder, folder, seeds->seed[0]);
    }
    for (int i = 0; i < N; i++) {
        FLIM_TRY(files[i].output.path[0] ? flim_output_check(&files[i].output, err) : FLIM_OK);
        alone = alone || flim_file_is_standard_output(files[i].output.path);
    }
    flim_seeds_add_stored(folder, &all);
    FLIM_TRY_DONE(flim_repeated_read(folder, &all, &result, err));
    FLIM_TRY_DONE(result.n > 0 ? FLIM_OK : flim_fail(err, FLIM_ERROR_DATA, "%s: no fold of its seeds is done", folder));
    for (int i = 0; i < N; i++) {
        FLIM_TRY_DONE(files[i].output.path[0] ? files[i].write(&result, &files[i].output, err) : FLIM_OK);
    }
    if (!alone) {
        flim_repeated_print(&result, &log);
        tool_say_written(&log, (const char *const[]){o->csv, o->json}, N);
    }
done:
    flim_repeated_free(&result);
    return status;
}

static flim_status report_runs(void *read, const flim_string_list *runs, console *screen, flim_error *err)
{
    const options *o = read;
    const flim_log log = console_log(screen);
    /* The tables repeat every warning: if both streams are one terminal, once is enough. */
    const bool once = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    const flim_report_options request = {.data = (const char *const *)o->data.item,
                                         .n_data = o->data.n,
                                         .pictures = o->pictures && o->html[0],
                                         .explanation = o->explain[0] ? o->explain : NULL,
                                         .embeddings = o->embeddings[0] ? o->embeddings : NULL,
                                         .errors = o->errors,
                                         .workers = (int)o->workers,
                                         .replicates = (int)o->replicates,
                                         .seed = o->seed,
                                         .log = once ? NULL : &log};
    file files[N_FILES] = {
        {{.path = o->csv, .kind = "a CSV table of fold_metrics", .begins = FLIM_REPORT_CSV_BEGINS}, flim_report_write_csv},
        {{.path = o->json, .kind = "a JSON report of fold_metrics", .begins = FLIM_REPORT_JSON_BEGINS},
         flim_report_write_json},
        {{.path = o->markdown, .kind = "a Markdown report of fold_metrics", .begins = FLIM_REPORT_MARKDOWN_BEGINS},
         flim_report_write_markdown},
        {{.path = o->html, .kind = "a page of fold_metrics", .begins = FLIM_REPORT_HTML_BEGINS}, flim_report_write_html}};
    flim_string_list taken = {0};
    flim_report *report = NULL;
    bool alone = false; /* standard output is for one of the files */
    flim_status status = FLIM_OK;
    flim_seeds seeds;
    for (int i = 0; i < runs->n; i++) {
        FLIM_TRY(flim_seeds_find(runs->item[i], &seeds, err));
        if (seeds.n > 0) {
            return runs->n == 1 ? report_seeds(o, runs->item[i], &seeds, screen, err)
                                : flim_fail(err, FLIM_ERROR_USAGE,
                                            "%s has runs of several seeds: compare them one by one, as in %s/seed_%" PRIu64,
                                            runs->item[i], runs->item[i], seeds.seed[0]);
        }
    }
    FLIM_TRY_DONE(check_files(o, files, &taken, &alone, err));
    const volatile int *stop = NULL;
    if (o->watch) {
        stop = console_catch_signals();
        standing at;
        FLIM_TRY_DONE(watch_runs(o, runs, &request, &files[N_FILES - 1].output, stop, &log, &at, err));
        if (at.abandoned) {
            log_abandoned(&at, &log);
        }
        if (!at.complete && !at.has_results) { /* of which there is only the page */
            goto done;
        }
    }
    FLIM_TRY_DONE(flim_report_create((const char *const *)runs->item, runs->n, &request, &report, err));
    /* From here a signal is to leave no temporary file. */
    stop = stop ? stop : console_catch_signals();
    for (int i = 0; i < N_FILES; i++) {
        files[i].output.stop = stop;
        FLIM_TRY_DONE(files[i].output.path[0] ? files[i].write(report, &files[i].output, err) : FLIM_OK);
        FLIM_TRY_DONE(flim_stopped(stop) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK);
    }
    FLIM_TRY_DONE(alone ? FLIM_OK : flim_report_print(report, console_columns(STDOUT_FILENO), &log, err));
    if (!alone) {
        tool_say_written(&log, (const char *const[]){o->html, o->csv, o->json, o->markdown}, N_FILES);
    }
done:
    flim_report_destroy(report);
    flim_string_list_free(&taken);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, report_runs, argc, argv);
}
