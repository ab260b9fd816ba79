#include "data/findings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"

void flim_findings_free(flim_findings *findings)
{
    for (int i = 0; i < findings->n; i++) {
        flim_free(findings->item[i].text);
    }
    flim_free(findings->item);
    *findings = (flim_findings){0};
}

const char *flim_finding_name(flim_finding_kind kind)
{
    static const char *const names[] = {
#define FLIM_FINDING_WORD(name, word) [name] = #word,
        FLIM_FINDING_KINDS(FLIM_FINDING_WORD)
#undef FLIM_FINDING_WORD
    };
    return names[kind];
}

static const char *severity_name(flim_finding_severity severity)
{
    return severity == FLIM_FINDING_ERROR ? "error" : severity == FLIM_FINDING_WARNING ? "warning" : "note";
}

flim_status flim_findings_add(flim_findings *findings, flim_finding_kind kind, flim_finding_severity severity,
                              const flim_found *cells, flim_error *err, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (findings->n == findings->capacity) {
        const int capacity = findings->capacity ? 2 * findings->capacity : 8;
        flim_finding *item = flim_realloc(findings->item, (size_t)capacity, sizeof *item, err);
        if (!item) {
            return FLIM_ERROR_MEMORY;
        }
        findings->item = item;
        findings->capacity = capacity;
    }
    flim_finding *added = &findings->item[findings->n];
    *added = (flim_finding){.kind = kind, .severity = severity, .text = flim_strdup(text, err)};
    if (!added->text) {
        return FLIM_ERROR_MEMORY;
    }
    if (cells) {
        added->cells = *cells;
    }
    findings->n++;
    return FLIM_OK;
}

const flim_finding *flim_findings_refusal(const flim_findings *findings)
{
    for (int i = 0; i < findings->n; i++) {
        if (findings->item[i].severity == FLIM_FINDING_ERROR) {
            return &findings->item[i];
        }
    }
    return NULL;
}

static int shown_cells(const flim_found *found)
{
    return found->count < FLIM_FINDING_CELLS ? (int)found->count : FLIM_FINDING_CELLS;
}

/* "3, 7, 12, ..." */
static void cells_text(const flim_found *found, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < shown_cells(found) && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "", found->cell[i]);
    }
    if (found->count > FLIM_FINDING_CELLS && used < size) {
        snprintf(text + used, size - used, ", ...");
    }
}

void flim_findings_log(const flim_findings *findings, int from, const flim_log *log)
{
    for (int i = from; i < findings->n; i++) {
        const flim_finding *f = &findings->item[i];
        char cells[160];
        cells_text(&f->cells, cells, sizeof cells);
        flim_log_line(log, f->severity == FLIM_FINDING_NOTE ? FLIM_LOG_NOTE : FLIM_LOG_WARNING, "%s%s%s%s", f->text,
                      f->cells.count ? f->cells.count == 1 ? " (cell " : " (cells " : "", cells, f->cells.count ? ")" : "");
    }
}

void flim_findings_print(const flim_findings *findings, FILE *out)
{
    if (!findings->n) {
        return;
    }
    fprintf(out, "\n%-22s %-9s %9s  %s\n", "finding", "severity", "cells", "first cells");
    for (int i = 0; i < findings->n; i++) {
        const flim_finding *f = &findings->item[i];
        char cells[160], count[24] = "-";
        cells_text(&f->cells, cells, sizeof cells);
        if (f->cells.count) {
            snprintf(count, sizeof count, "%" PRId64, f->cells.count);
        }
        fprintf(out, "%-22s %-9s %9s  %s\n    ", flim_finding_name(f->kind), severity_name(f->severity), count,
                f->cells.count ? cells : "-");
        flim_text_put(out, f->text);
        fputs("\n", out);
    }
}

flim_json *flim_findings_json(const flim_findings *findings)
{
    flim_json *list = flim_json_array();
    for (int i = 0; i < findings->n; i++) {
        const flim_finding *f = &findings->item[i];
        flim_json *one = flim_json_object(), *cells = flim_json_array();
        flim_json_set_string(one, "kind", flim_finding_name(f->kind));
        flim_json_set_string(one, "severity", severity_name(f->severity));
        flim_json_set_integer(one, "count", f->cells.count);
        for (int c = 0; c < shown_cells(&f->cells); c++) {
            flim_json_add_integer(cells, f->cells.cell[c]);
        }
        flim_json_set(one, "cells", cells);
        flim_json_set_string(one, "text", f->text);
        flim_json_add(list, one);
    }
    return list;
}
