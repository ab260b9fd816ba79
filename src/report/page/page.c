/* The report as one self-contained HTML page: no script, no file beside it; figures are embedded as data.  The page is made of
 * templates/page.html and the sections' templates; here is what holds the sections together. */
#include <time.h>

#include "core/file.h"
#include "core/text.h"
#include "core/try.h"
#include "flim/version.h"
#include "report/page/sections.h"
#include "report/templates.h"

/* Line ends and tabs are those of configs that the page shows. */
static void escape(FILE *stream, const char *text)
{
    while (*text) {
        uint32_t code = 0;
        const size_t length = flim_utf8_length(text, &code);
        switch (code) {
        case '<': fputs("&lt;", stream); break;
        case '>': fputs("&gt;", stream); break;
        case '&': fputs("&amp;", stream); break;
        case '"': fputs("&quot;", stream); break;
        case '\'': fputs("&#39;", stream); break;
        case '\n':
        case '\t': putc((int)code, stream); break;
        default:
            if (length && !flim_text_is_hidden(code)) {
                fwrite(text, 1, length, stream);
            } else {
                fprintf(stream, code > 0xff ? "\\u%04x" : "\\x%02x", length ? code : (unsigned char)*text);
            }
        }
        text += length ? length : 1;
    }
}

/* What every section of a run can name. */
static void set_run(flim_json *values, const report_run *run)
{
    flim_json *classes = flim_json_array();
    for (int c = 0; c < run->classes; c++) {
        flim_json *class = flim_json_object();
        int64_t cells = 0;
        for (int d = 0; d < run->classes; d++) {
            cells += run->matrix[c * run->classes + d];
        }
        flim_json_set_string(class, "name", run->class_name[c]);
        flim_json_set_integer(class, "cells", cells);
        flim_json_add(classes, class);
    }
    flim_json_set_string(values, "folder", run->folder);
    flim_json_set_string(values, "label", run->label);
    flim_json_set_integer(values, "n_folds", run->n_folds);
    flim_json_set_string(values, "mode", report_mode(run));
    flim_json_set_integer(values, "n_cells", run->pool.n);
    flim_json_set_integer(values, "n_classes", run->classes);
    flim_json_set_bool(values, "two", run->classes == 2);
    flim_json_set_string(values, "class_1", run->classes > 1 ? run->class_name[1] : NULL);
    flim_json_set_bool(values, "done", run->n_folds > 0);
    flim_json_set_bool(values, "at_work", run->n_folds + run->n_failed < run->splits.n_folds);
    flim_json_set_integer(values, "planned", run->splits.n_folds);
    flim_json_set(values, "classes", classes);
    flim_json_set_integer(values, "n_groups", run->groups);
    flim_json_set_bool(values, "grouped", run->groups > 0);
}

static bool all_have_folds(const report_subject *subject)
{
    bool all = true;
    for (int i = 0; i < subject->report->n_runs; i++) {
        const report_run *run = &subject->report->run[i];
        all = all && (run->n_folds > 0 || (subject->run && subject->run != run));
    }
    return all;
}

/* Sets values["sections"] to those of a list that apply.  number: of the run, or -1. */
static flim_status set_sections(flim_json *values, const report_section *list, size_t n, const report_subject *subject,
                                int number, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_json *sections = flim_json_array();
    for (size_t i = 0; i < n && status == FLIM_OK; i++) {
        char text[64];
        const bool done = all_have_folds(subject);
        if ((!done && !list[i].live) || (list[i].applies && !list[i].applies(subject))) {
            continue;
        }
        flim_json *section = flim_json_object();
        snprintf(text, sizeof text, number > 0 ? "%s-%d" : "%s", list[i].id, number + 1);
        flim_json_set_string(section, "anchor", text);
        snprintf(text, sizeof text, "%s.html", list[i].id);
        flim_json_set_string(section, "template", text);
        flim_json_set_string(section, "title", list[i].title);
        status = list[i].fill(section, subject, err);
        flim_json_add(sections, section);
    }
    flim_json_set(values, "sections", sections);
    return status;
}

static flim_status add_run(flim_json *runs, const flim_report *report, int i, flim_error *err)
{
    flim_json *run = flim_json_object();
    set_run(run, &report->run[i]);
    flim_json_set_integer(run, "number", i + 1);
    report_cells *cells = NULL;
    flim_error why = {0};
    flim_status status = FLIM_OK;
    if (report->options.pictures && report->run[i].n_folds > 0) {
        FLIM_TRY_DONE(report_cells_open(&report->run[i], &report->options, &cells, &why, err));
    }
    status = set_sections(run, report_sections_of_run, report_n_sections_of_run,
                          &(report_subject){report, &report->run[i], cells, why.text}, i, err);
done:
    report_cells_close(cells);
    flim_json_add(runs, run);
    return status;
}

/* Of a page about runs at work. */
static void set_refresh(flim_json *page, const flim_report *report)
{
    if (report->options.refresh == 0 || flim_report_is_complete(report)) {
        flim_json_set_null(page, "refresh");
        return;
    }
    char now[64];
    struct tm utc;
    const time_t seconds = time(NULL);
    flim_json *refresh = flim_json_object();
    gmtime_r(&seconds, &utc);
    strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S UTC", &utc);
    flim_json_set_integer(refresh, "seconds", report->options.refresh);
    flim_json_set_string(refresh, "now", now);
    flim_json_set(page, "refresh", refresh);
}

static flim_status set_page(flim_json *page, const flim_report *report, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_json *runs = flim_json_array(), *all = flim_json_object();
    flim_json_set_string(page, "label", report->run[0].label);
    flim_json_set_string(page, "version", flim_version());
    set_refresh(page, report);
    flim_json_set_bool(page, "several", report->n_runs > 1);
    FLIM_TRY_DONE(
        set_sections(all, report_sections_of_all, report_n_sections_of_all, &(report_subject){.report = report}, -1, err));
    for (int i = 0; i < report->n_runs; i++) {
        FLIM_TRY_DONE(add_run(runs, report, i, err));
    }
done:
    flim_json_set(page, "all", all);
    flim_json_set(page, "runs", runs);
    return status;
}

flim_status flim_report_write_html(const flim_report *report, const flim_output *output, flim_error *err)
{
    const flim_template_set set = {report_templates, report_templates_n, escape, "n/a"};
    flim_file_writer writer = {0};
    flim_status status = FLIM_OK;
    flim_json *page = flim_json_object();
    FLIM_TRY_DONE(set_page(page, report, err));
    FLIM_TRY_DONE(flim_output_begin(output, &writer, err));
    FLIM_TRY_DONE(flim_template_write(&set, "page.html", page, writer.stream, err));
    status = flim_file_commit(&writer, err);
done:
    flim_file_abandon(&writer);
    flim_json_free(page);
    return status;
}
