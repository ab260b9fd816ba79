/* fold_metrics: how well finished runs did, how sure that is, and what simple models reach (report/report.h). */
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "common/tool.h"
#include "core/try.h"
#include "report/report.h"

typedef struct options {
    char *csv, *json, *markdown, *html;
    flim_string_list data;
    int64_t replicates;
    uint64_t seed;
    bool pictures;
} options;

#define AT(member) offsetof(options, member)
static const flim_flag_row rows[] = {
    {"Output", "csv", FLIM_VALUE_TEXT, AT(csv), "", "FILE", .help = "write the table as CSV"},
    {NULL, "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "write everything as JSON"},
    {NULL, "md", FLIM_VALUE_TEXT, AT(markdown), "", "FILE", .help = "write the tables as Markdown"},
    {NULL, "html", FLIM_VALUE_TEXT, AT(html), "", "FILE", .help = "write one self-contained page with plots (needs gnuplot)"},
    {NULL, "pictures", FLIM_VALUE_SWITCH, AT(pictures), "true", NULL, .help = "show cells on the page: needs the run's data"},
    {NULL, "data", FLIM_VALUE_LIST, AT(data), "", "FILE", .help = "HDF5 file of the run, if it has moved; repeatable"},
    {"Statistics", "replicates", FLIM_VALUE_INTEGER, AT(replicates), "2000", "N",
     .help = "of the bootstrap; 0 = no intervals", .allowed = ">= 0, <= 1000000"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, AT(seed), "42", "N", .help = "of the bootstrap"},
};
static const flim_flag_table table = {
    "fold_metrics",
    "fold_metrics RUN... [flag]...",
    "Recomputes the metrics of run folders from their predictions and shows them by fold, pooled, with\n"
    "intervals, baselines and groups.  Two or more runs are compared in pairs with the first.",
    rows,
    sizeof rows / sizeof rows[0],
    "RUN",
    NULL};

static flim_status report_runs(void *read, const flim_string_list *runs, console *screen, flim_error *err)
{
    const options *o = read;
    flim_report *report = NULL;
    const flim_log log = console_log(screen);
    /* The tables repeat every warning: if both streams are one terminal, once is enough. */
    const bool once = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    const flim_report_options request = {.data = (const char *const *)o->data.item,
                                         .n_data = o->data.n,
                                         .pictures = o->pictures,
                                         .replicates = (int)o->replicates,
                                         .seed = o->seed,
                                         .log = once ? NULL : &log};
    const struct {
        const char *path;
        flim_status (*write)(const flim_report *, const char *, flim_error *);
    } files[] = {{o->csv, flim_report_write_csv},
                 {o->json, flim_report_write_json},
                 {o->markdown, flim_report_write_markdown},
                 {o->html, flim_report_write_html}};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_report_create((const char *const *)runs->item, runs->n, &request, &report, err));
    FLIM_TRY_DONE(flim_report_print(report, &log, err));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        FLIM_TRY_DONE(files[i].path[0] ? files[i].write(report, files[i].path, err) : FLIM_OK);
    }
done:
    flim_report_destroy(report);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, report_runs, argc, argv);
}
