#include "core/parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

flim_status flim_parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *out, flim_error *err)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (text[0] == '\0' || isspace((unsigned char)text[0]) || *end != '\0') {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%s' is not a whole number", what, text);
    }
    if (errno == ERANGE || value < min || value > max) {
        if (max == INT64_MAX) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s: %s is out of range, must be at least %" PRId64, what, text, min);
        }
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: %s is out of range %" PRId64 "..%" PRId64, what, text, min, max);
    }
    *out = value;
    return FLIM_OK;
}

flim_status flim_parse_u64(const char *what, const char *text, uint64_t *out, flim_error *err)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno == ERANGE) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%s' is not a whole number from 0 to 2^64-1", what, text);
    }
    *out = value;
    return FLIM_OK;
}

flim_status flim_parse_double(const char *what, const char *text, double min, double max, double *out, flim_error *err)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (text[0] == '\0' || isspace((unsigned char)text[0]) || *end != '\0' || !isfinite(value)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%s' is not a finite number", what, text);
    }
    if (value < min || value > max) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: %s is out of range %g..%g", what, text, min, max);
    }
    *out = value;
    return FLIM_OK;
}

flim_status flim_parse_bool(const char *what, const char *text, bool *out, flim_error *err)
{
    static const char *const words[2][4] = {{"false", "no", "off", "0"}, {"true", "yes", "on", "1"}};
    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 4; i++) {
            if (strcasecmp(text, words[value][i]) == 0) {
                *out = value != 0;
                return FLIM_OK;
            }
        }
    }
    return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%s' is neither true nor false", what, text);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete, replace or exchange with their neighbour (the optimal string alignment distance). */
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    int rows[3][LONGEST + 1];
    const size_t na = strnlen(a, LONGEST), nb = strnlen(b, LONGEST);
    for (size_t j = 0; j <= nb; j++) {
        rows[0][j] = (int)j;
    }
    for (size_t i = 1; i <= na; i++) {
        const int *before = rows[(i + 1) % 3], *last = rows[(i - 1) % 3]; /* of i - 2 and i - 1 letters of a */
        int *row = rows[i % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            row[j] = smaller(last[j - 1] + (a[i - 1] != b[j - 1]), smaller(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = smaller(row[j], before[j - 2] + 1);
            }
        }
    }
    return rows[na % 3][nb];
}

/* One that holds the other, as "batch_size" holds "batch" and "roc_auc" holds "auc": the one that differs least in length. */
static const char *nearest_part(const char *text, const char *const *candidates, int n)
{
    const char *best = NULL;
    const size_t length = strlen(text);
    size_t least = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        const size_t other = strlen(candidates[i]), differ = other > length ? other - length : length - other;
        if (length >= 3 && other >= 3 && differ < least && (strstr(text, candidates[i]) || strstr(candidates[i], text))) {
            best = candidates[i];
            least = differ;
        }
    }
    return best;
}

const char *flim_nearest(const char *text, const char *const *candidates, int n)
{
    const char *longer = NULL; /* the shortest candidate that text abbreviates */
    size_t length = strlen(text);
    for (int i = 0; i < n && length >= 3; i++) {
        if (strncmp(text, candidates[i], length) == 0 && (!longer || strlen(candidates[i]) < strlen(longer))) {
            longer = candidates[i];
        }
    }
    if (longer || n < 1) {
        return longer;
    }
    int best = 0, best_distance = distance(text, candidates[0]);
    for (int i = 1; i < n; i++) {
        int d = distance(text, candidates[i]);
        if (d < best_distance) {
            best = i;
            best_distance = d;
        }
    }
    /* Further away it is another word. */
    return best_distance <= (int)(length / 4) + 1 && best_distance < (int)length ? candidates[best]
                                                                                 : nearest_part(text, candidates, n);
}

bool flim_parse_weights(const char *text, double *weight, int most, int *n)
{
    for (*n = 0; *n < most; text++) {
        char *end = NULL;
        const double value = strtod(text, &end);
        if (end == text || isspace((unsigned char)text[0]) || !isfinite(value) || !(value > 0)) {
            return false;
        }
        weight[(*n)++] = value;
        text = end;
        if (*text != ',') {
            return *text == '\0';
        }
    }
    return false;
}

/* Digits at *text, which then stands behind them. */
static bool take_number(const char **text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = isdigit((unsigned char)**text) ? strtoull(*text, &end, 10) : 0;
    if (!end || errno == ERANGE) {
        return false;
    }
    *text = end;
    return true;
}

static bool add_seed(uint64_t value, uint64_t *seed, int most, int *n)
{
    for (int i = 0; i < *n; i++) {
        if (seed[i] == value) {
            return false;
        }
    }
    if (*n == most) {
        return false;
    }
    seed[(*n)++] = value;
    return true;
}

bool flim_parse_seeds(const char *text, uint64_t *seed, int most, int *n)
{
    *n = 0;
    for (;; text++) {
        uint64_t first, last;
        if (!take_number(&text, &first)) {
            return false;
        }
        last = first;
        if (*text == '-') {
            text++;
            if (!take_number(&text, &last) || last < first || last - first >= (uint64_t)most) {
                return false;
            }
        }
        for (uint64_t i = 0; i <= last - first; i++) {
            if (!add_seed(first + i, seed, most, n)) {
                return false;
            }
        }
        if (*text != ',') {
            return *text == '\0';
        }
    }
}
