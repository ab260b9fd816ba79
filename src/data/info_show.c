/* A data report as text and as JSON. */
#include "data/info.h"

#include <inttypes.h>
#include <math.h>

#include "core/text.h"
#include "data/dataset_internal.h"

static const char *group_of(const flim_data_report *report, const flim_table_row *row)
{
    return row->group >= 0 ? report->dataset->group_name[row->group] : row == &report->row[report->n_rows - 1] ? "all" : "-";
}

static const char *class_of(const flim_data_report *report, const flim_table_row *row)
{
    return row->label >= 0 ? report->dataset->class_name[row->label] : "-";
}

/* Columns that a text takes on a terminal as it is shown: its characters, near enough. */
static int columns(const char *name)
{
    char shown[1024];
    int n = 0;
    flim_text_show(name, shown, sizeof shown);
    for (const char *text = shown; *text; text++) {
        n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

static void print_padded(FILE *out, const char *text, int width)
{
    flim_text_put(out, text);
    fprintf(out, "%*s", width - columns(text), "");
}

/* Names stand last, where they may be long: rows of 80 columns have 20 for them. */
static void print_table(const flim_data_report *report, FILE *out)
{
    int group_width = 5;
    for (int64_t i = 0; i < report->n_rows; i++) {
        const int group = columns(group_of(report, &report->row[i]));
        group_width = group > group_width ? group : group_width;
    }
    fprintf(out, "\n%5s %7s %7s %6s %5s %5s %5s %5s %5s\n", "", "photons", "", "zeros", "satu-", "empty", "empty", "peak",
            "mask");
    fprintf(out, "%5s %7s %7s %6s %5s %5s %5s %5s %5s  ", "cells", "mean", "median", "%", "rated", "cells", "masks", "bin",
            "area");
    print_padded(out, "group", group_width);
    fputs("  class\n", out);
    for (int64_t i = 0; i < report->n_rows; i++) {
        const flim_table_row *row = &report->row[i];
        fprintf(out, "%5" PRId64 " %7.1f %7.1f %6.2f %5" PRId64 " %5" PRId64 " %5" PRId64 " %5.1f %5.0f  ", row->cells,
                row->photons_mean, row->photons_median, 100 * row->zero_fraction, row->saturated, row->all_zero,
                row->empty_mask, row->peak_bin, row->mask_area);
        print_padded(out, group_of(report, row), group_width);
        fputs("  ", out);
        flim_text_put(out, class_of(report, row));
        fputs("\n", out);
    }
}

static void put_line(FILE *out, const char *mark, const char *text)
{
    fputs(mark, out);
    flim_text_put(out, text);
    fputs("\n", out);
}

void flim_data_report_print(const flim_data_report *report, FILE *out)
{
    for (int i = 0; i < report->n_paths; i++) {
        fprintf(out, "%s", i ? " + " : "");
        flim_text_put(out, report->path[i]);
    }
    fprintf(out, "\n");
    const flim_dataset *d = report->dataset;
    if (d) {
        const flim_dataset_info *info = &d->info;
        fprintf(out, "  cells    %" PRId64 " of T = %d time bins, H = %d rows, W = %d columns\n", info->n, info->t, info->h,
                info->w);
        for (int i = 0; i < info->n_files; i++) {
            const flim_source_info *cells = &d->file[i].source->info;
            fprintf(out, "  counts   %s, %s, %.1f MB stored", cells->type, cells->layout, (double)cells->stored_bytes / 1e6);
            if (info->n_files > 1) {
                fputs(" (", out);
                flim_text_put(out, d->path[i]);
                fputs(")", out);
            }
            fputs("\n", out);
        }
        if (info->label) {
            fprintf(out, "  classes  %d:", info->classes);
            for (int k = 0; k < info->classes; k++) {
                fprintf(out, "%s ", k ? "," : "");
                flim_text_put(out, info->class_name[k]);
            }
            fprintf(out, "\n");
        } else {
            fprintf(out, "  classes  no /label\n");
        }
        if (info->group) {
            fprintf(out, "  groups   %" PRId64 "\n", info->groups);
        } else {
            fprintf(out, "  groups   no /group\n");
        }
        fprintf(out, "  mask     %s\n", info->has_mask ? "/mask" : "none: the pixels with photons");
        for (int i = 0; i < info->n_files && !isnan(report->inside[i]); i++) {
            fprintf(out, "           %.1f %% of a cell's photons are inside", 100 * report->inside[i]);
            fprintf(out, info->n_files > 1 ? " (%s)\n" : "\n", d->path[i]);
        }
        fprintf(out, "  names    %s\n", info->name ? "/name" : "none");
        if (info->time_range_ns > 0) {
            fprintf(out, "  range    %g ns, %.4g ns per bin\n", info->time_range_ns, info->time_range_ns / info->t);
        }
        print_table(report, out);
        flim_findings_print(&report->findings, out);
    }
    if (report->n_warnings || report->bad) {
        fprintf(out, "\n");
    }
    for (int64_t i = 0; report->listed && i < report->n_listed; i++) {
        put_line(out, "bad: ", report->listed[i].text);
    }
    if (report->bad > report->n_listed) {
        fprintf(out, "bad: and %" PRId64 " more cell%s (--scan lists every one)\n", report->bad - report->n_listed,
                flim_s(report->bad - report->n_listed));
    }
    for (int i = 0; i < report->n_warnings; i++) {
        put_line(out, "note: ", report->warning[i]);
    }
    if (report->refused) {
        put_line(out, "\ntrain_cv cannot use it: ", report->refused);
    } else if (d) {
        fprintf(out, "\nOK for train_cv%s\n",
                d->group ? ", including group-wise cross-validation" : "; there are no groups to split by");
    }
}

static flim_json *row_json(const flim_data_report *report, const flim_table_row *row)
{
    flim_json *json = flim_json_object();
    flim_json_set_string(json, "group", row->group >= 0 ? report->dataset->group_name[row->group] : NULL);
    flim_json_set_string(json, "class", row->label >= 0 ? report->dataset->class_name[row->label] : NULL);
    flim_json_set_integer(json, "cells", row->cells);
    flim_json_set_number(json, "photons_mean", row->photons_mean);
    flim_json_set_number(json, "photons_median", row->photons_median);
    flim_json_set_number(json, "zero_fraction", row->zero_fraction);
    flim_json_set_integer(json, "saturated", row->saturated);
    flim_json_set_integer(json, "all_zero", row->all_zero);
    flim_json_set_integer(json, "empty_mask", row->empty_mask);
    flim_json_set_number(json, "peak_bin", row->peak_bin < 0 ? (double)NAN : row->peak_bin);
    flim_json_set_number(json, "mask_area", row->mask_area);
    return json;
}

flim_json *flim_data_report_json(const flim_data_report *report)
{
    flim_json *json = flim_json_object(), *paths = flim_json_array(), *warnings = flim_json_array();
    for (int i = 0; i < report->n_paths; i++) {
        flim_json_add_string(paths, report->path[i]);
    }
    flim_json_set(json, "paths", paths);
    flim_json_set_bool(json, "accepted", report->refused == NULL);
    flim_json_set_string(json, "refused", report->refused);
    if (report->dataset) {
        const flim_dataset *d = report->dataset;
        flim_json *classes = flim_json_array(), *groups = flim_json_array(), *files = flim_json_array(),
                  *rows = flim_json_array(), *bad = flim_json_array();
        flim_json_set_integer(json, "n", d->info.n);
        flim_json_set_integer(json, "t", d->info.t);
        flim_json_set_integer(json, "h", d->info.h);
        flim_json_set_integer(json, "w", d->info.w);
        for (int i = 0; i < d->info.n_files; i++) {
            const flim_source_info *cells = &d->file[i].source->info;
            flim_json *file = flim_json_object();
            flim_json_set_string(file, "path", d->path[i]);
            flim_json_set_integer(file, "n", cells->n);
            flim_json_set_string(file, "type", cells->type);
            flim_json_set_string(file, "layout", cells->layout);
            flim_json_set_integer(file, "stored_bytes", cells->stored_bytes);
            flim_json_set_bool(file, "best_layout", cells->best_layout);
            flim_json_set_number(file, "photons_inside_mask", report->inside[i]);
            flim_json_add(files, file);
        }
        flim_json_set(json, "files", files);
        for (int k = 0; d->label && k < d->info.classes; k++) {
            flim_json_add_string(classes, d->class_name[k]);
        }
        flim_json_set(json, "classes", classes);
        for (int64_t g = 0; g < d->info.groups; g++) {
            flim_json_add_string(groups, d->group_name[g]);
        }
        flim_json_set(json, "groups", groups);
        flim_json_set_bool(json, "mask", d->info.has_mask);
        flim_json_set_bool(json, "names", d->info.name != NULL);
        flim_json_set_number(json, "time_range_ns", d->info.time_range_ns > 0 ? d->info.time_range_ns : (double)NAN);
        for (int64_t i = 0; i + 1 < report->n_rows; i++) {
            flim_json_add(rows, row_json(report, &report->row[i]));
        }
        flim_json_set(json, "rows", rows);
        flim_json_set(json, "all", row_json(report, &report->row[report->n_rows - 1]));
        flim_json_set_integer(json, "bad", report->bad);
        for (int64_t i = 0; report->listed && i < report->n_listed; i++) {
            flim_json *one = flim_json_object();
            flim_json_set_integer(one, "cell", report->listed[i].cell);
            flim_json_set_string(one, "text", report->listed[i].text);
            flim_json_add(bad, one);
        }
        flim_json_set(json, "bad_cells", bad);
        flim_json_set(json, "findings", flim_findings_json(&report->findings));
    }
    for (int i = 0; i < report->n_warnings; i++) {
        flim_json_add_string(warnings, report->warning[i]);
    }
    flim_json_set(json, "notes", warnings);
    return json;
}
