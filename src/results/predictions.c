#include "flim/predictions.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/parse.h"
#include "core/text.h"
#include "core/try.h"
#include "flim/metrics.h"
#include "flim/network.h"
#include "formats/csv.h"

flim_status flim_predictions_create(int64_t n, int classes, flim_predictions *out, flim_error *err)
{
    *out = (flim_predictions){.n = n, .classes = classes, .outputs = flim_class_outputs(classes)};
    size_t count = (size_t)n;
    out->index = flim_alloc(count, sizeof *out->index, err);
    out->name = flim_alloc(count, sizeof *out->name, err);
    out->group = flim_alloc(count, sizeof *out->group, err);
    out->label = flim_alloc(count, sizeof *out->label, err);
    out->predicted = flim_alloc(count, sizeof *out->predicted, err);
    out->logits = flim_alloc(count * (size_t)out->outputs, sizeof *out->logits, err);
    if (!out->index || !out->name || !out->group || !out->label || !out->predicted || !out->logits) {
        flim_predictions_free(out);
        return FLIM_ERROR_MEMORY;
    }
    return FLIM_OK;
}

void flim_predictions_free(flim_predictions *predictions)
{
    for (int64_t i = 0; i < predictions->n; i++) {
        if (predictions->name) {
            flim_free(predictions->name[i]);
        }
        if (predictions->group) {
            flim_free(predictions->group[i]);
        }
    }
    flim_free(predictions->index);
    flim_free(predictions->name);
    flim_free(predictions->group);
    flim_free(predictions->label);
    flim_free(predictions->predicted);
    flim_free(predictions->logits);
    *predictions = (flim_predictions){0};
}

/* ---- writing ---- */

flim_status flim_predictions_print(const flim_predictions *p, FILE *stream, flim_error *err)
{
    double *probability = flim_alloc((size_t)p->classes, sizeof *probability, err); /* (K) of one cell */
    if (!probability) {
        return FLIM_ERROR_MEMORY;
    }
    int first = p->outputs == 1 ? 1 : 0; /* with two classes the columns speak of class 1 */
    fputs("index,name,group,label,predicted", stream);
    for (int pass = 0; pass < 2; pass++) {
        for (int k = 0; k < p->outputs; k++) {
            fprintf(stream, ",%s_%d", pass ? "prob" : "logit", first + k);
        }
    }
    putc('\n', stream);
    for (int64_t i = 0; i < p->n; i++) {
        const float *logits = p->logits + i * p->outputs;
        fprintf(stream, "%" PRId64 ",", p->index[i]);
        flim_csv_put(stream, p->name[i]);
        putc(',', stream);
        flim_csv_put(stream, p->group[i]);
        if (p->label[i] < 0) {
            fprintf(stream, ",,%d", p->predicted[i]);
        } else {
            fprintf(stream, ",%d,%d", p->label[i], p->predicted[i]);
        }
        for (int k = 0; k < p->outputs; k++) {
            fprintf(stream, ",%.9g", (double)logits[k]);
        }
        flim_probabilities(1, p->classes, logits, probability);
        for (int k = 0; k < p->outputs; k++) {
            fprintf(stream, ",%.9g", probability[first + k]);
        }
        putc('\n', stream);
    }
    flim_free(probability);
    return FLIM_OK;
}

flim_status flim_predictions_write(const flim_predictions *p, const char *path, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(flim_file_begin(&writer, path, err));
    const flim_status status = flim_predictions_print(p, writer.stream, err);
    if (status != FLIM_OK) {
        flim_file_abandon(&writer);
        return status;
    }
    return flim_file_commit(&writer, err);
}

/* ---- reading ---- */

enum { FIXED = 5 /* columns before the logits */ };

/* A cursor over the file's text, which fields are cut out of in place. */
typedef struct csv {
    const char *path;
    char *at; /* the next character; '\0' at the end */
    int64_t line;
} csv;

static flim_status bad_line(const csv *in, flim_error *err, const char *what)
{
    return flim_fail(err, FLIM_ERROR_DATA, "%s:%" PRId64 ": %s", in->path, in->line, what);
}

/* Cuts the next field of the line out, unquoted and zero-terminated; *last tells that the line ended with it. */
static flim_status next_field(csv *in, char **field, int *last, flim_error *err)
{
    char *write = in->at;
    *field = write;
    if (*in->at == '"') {
        char *read = in->at + 1;
        for (;; read++) {
            if (*read == '\0') {
                return bad_line(in, err, "a quoted field does not end");
            }
            if (*read == '"' && *++read != '"') {
                break;
            }
            in->line += *read == '\n';
            *write++ = *read;
        }
        in->at = read;
    } else {
        in->at += strcspn(in->at, ",\r\n");
        write = in->at;
    }
    char end = *in->at;
    if (end == '\r' && in->at[1] == '\n') {
        in->at++;
        end = '\n';
    }
    if (end != ',' && end != '\n' && end != '\0') {
        return bad_line(in, err, "text follows a quoted field");
    }
    in->at += end != '\0';
    *last = end != ',';
    *write = '\0';
    return FLIM_OK;
}

/* The header that `outputs` outputs must have is compared field by field: columns in another order would be other numbers. */
static flim_status read_header(csv *in, int *outputs, flim_error *err)
{
    static const char *const fixed[FIXED] = {"index", "name", "group", "label", "predicted"};
    const char *at = in->at;
    int columns = 1, last = 0;
    char *field;
    for (; *at && *at != '\n'; at++) {
        columns += *at == ',';
    }
    *outputs = (columns - FIXED) / 2;
    if (columns < FIXED + 2 || (columns - FIXED) % 2 != 0 || *outputs == 2) {
        return bad_line(in, err,
                        "the header must be index,name,group,label,predicted, then one logit_ and one prob_ column for two "
                        "classes, else one each per class");
    }
    for (int c = 0; c < columns; c++) {
        char want[32];
        const int k = c - FIXED, first = *outputs == 1;
        if (c < FIXED) {
            snprintf(want, sizeof want, "%s", fixed[c]);
        } else {
            snprintf(want, sizeof want, "%s_%d", k < *outputs ? "logit" : "prob", first + k % *outputs);
        }
        FLIM_TRY(next_field(in, &field, &last, err));
        if (strcmp(field, want) != 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s:%" PRId64 ": the header's column %d is '%.80s', expected '%s'",
                             in->path, in->line, c + 1, field, want);
        }
    }
    in->line++;
    return last ? FLIM_OK : bad_line(in, err, "the header has more columns");
}

/* The field of a column into its row. */
static flim_status read_field(flim_predictions *p, int64_t row, int column, const char *field, double *probability,
                              flim_error *err)
{
    int64_t whole = 0;
    double real = 0;
    if (column == 0) {
        return flim_parse_i64("index", field, 0, INT64_MAX - 1, &p->index[row], err);
    }
    if (column == 1 || column == 2) {
        char **to = column == 1 ? &p->name[row] : &p->group[row];
        *to = flim_utf8_of(flim_csv_text(field), err); /* older runs wrote the data's bytes as they were */
        return *to ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    if (column == 3) {
        FLIM_TRY(*field ? flim_parse_i64("label", field, 0, p->classes - 1, &whole, err) : FLIM_OK);
        p->label[row] = *field ? (int32_t)whole : -1;
    } else if (column == 4) {
        FLIM_TRY(flim_parse_i64("predicted", field, 0, p->classes - 1, &whole, err));
        p->predicted[row] = (int32_t)whole;
    } else if (column < FIXED + p->outputs) {
        FLIM_TRY(flim_parse_double("logit", field, -3.5e38, 3.5e38, &real, err));
        p->logits[row * p->outputs + column - FIXED] = (float)real;
    } else {
        FLIM_TRY(flim_parse_double("prob", field, 0, 1, &probability[column - FIXED - p->outputs], err));
    }
    return FLIM_OK;
}

/* The probabilities of a row against those that its logits give.  The bound leaves room for a spreadsheet's rounding. */
static flim_status check_probabilities(const csv *in, const flim_predictions *p, int64_t row, const double *said,
                                       double *scratch, flim_error *err)
{
    const double bound = 1e-3;
    const int first = p->outputs == 1;
    flim_probabilities(1, p->classes, p->logits + row * p->outputs, scratch);
    for (int k = 0; k < p->outputs; k++) {
        if (fabs(said[k] - scratch[first + k]) > bound) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s:%" PRId64 ": prob_%d is %.6g, but the row's logits give %.6g: its columns were mixed up",
                             in->path, in->line, first + k, said[k], scratch[first + k]);
        }
    }
    return FLIM_OK;
}

/* probability: (2 K), scratch. */
static flim_status read_row(csv *in, flim_predictions *p, int64_t row, double *probability, flim_error *err)
{
    int last = 0;
    for (int column = 0; column < FIXED + 2 * p->outputs; column++) {
        char *field;
        if (last) {
            return bad_line(in, err, "too few columns");
        }
        FLIM_TRY(next_field(in, &field, &last, err));
        const flim_status status = read_field(p, row, column, field, probability, err);
        if (status == FLIM_ERROR_USAGE) {
            flim_fail_prefix(err, "%s:%" PRId64 ": ", in->path, in->line);
            return flim_fail(err, FLIM_ERROR_DATA, "%s", err ? err->text : "");
        }
        FLIM_TRY(status);
    }
    if (!last) {
        return bad_line(in, err, "too many columns");
    }
    FLIM_TRY(check_probabilities(in, p, row, probability, probability + p->classes, err));
    in->line++;
    return FLIM_OK;
}

/* Rows that the text may hold: at most one per line (quoted fields may hold more line ends), and one per so many bytes as
 * a row has columns, which bounds what a wrong file may cost. */
static int64_t most_rows(const char *text, int outputs)
{
    const int64_t most = (int64_t)strlen(text) / (FIXED + 2 * outputs) + 1;
    int64_t rows = 0;
    for (; *text; text++) {
        rows += *text == '\n' || text[1] == '\0';
    }
    return rows < most ? rows : most;
}

flim_status flim_predictions_read(const char *path, flim_predictions *out, flim_error *err)
{
    char *text = NULL;
    size_t length = 0;
    int outputs = 0;
    int64_t row = 0;
    double *probability = NULL; /* (2 K) of one row: read, and as they should be */
    flim_status status = FLIM_OK;
    *out = (flim_predictions){0};
    FLIM_TRY(flim_file_read(path, (size_t)1 << 32, &text, &length, err));
    csv in = {path, text, 1};
    FLIM_TRY_DONE(strlen(text) == length ? FLIM_OK : bad_line(&in, err, "the file has a zero byte"));
    FLIM_TRY_DONE(read_header(&in, &outputs, err));
    FLIM_TRY_DONE(flim_predictions_create(most_rows(in.at, outputs), outputs == 1 ? 2 : outputs, out, err));
    probability = flim_alloc(2 * (size_t)out->classes, sizeof *probability, err);
    FLIM_TRY_DONE(probability ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (; *in.at; row++) {
        FLIM_TRY_DONE(row < out->n ? read_row(&in, out, row, probability, err) : bad_line(&in, err, "more rows than lines"));
    }
    out->n = row;
done:
    flim_free(probability);
    flim_free(text);
    if (status != FLIM_OK) {
        flim_predictions_free(out);
    }
    return status;
}
