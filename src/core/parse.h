/* Checked parsing of numbers: the whole text must be a number in range, else FLIM_ERROR_USAGE naming `what` and the text. */
#ifndef FLIM_CORE_PARSE_H
#define FLIM_CORE_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/status.h"

flim_status flim_parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *out, flim_error *err);
flim_status flim_parse_u64(const char *what, const char *text, uint64_t *out, flim_error *err);
/* Finite, min <= value <= max. */
flim_status flim_parse_double(const char *what, const char *text, double min, double max, double *out, flim_error *err);
/* true/false, yes/no, on/off, 1/0 in any case. */
flim_status flim_parse_bool(const char *what, const char *text, bool *out, flim_error *err);
/* The nearest of candidates[0..n-1] to `text`, for "did you mean": one that `text` abbreviates, else Levenshtein's if no more
 * than a letter in four differs, else one that is a part of it or the other way round, else NULL. */
const char *flim_nearest(const char *text, const char *const *candidates, int n);

/* "1-5", "7", "1,2,9-12": at most `most` different numbers, in the order given, into seed; false where the text is none. */
bool flim_parse_seeds(const char *text, uint64_t *seed, int most, int *n);

/* Positive finite numbers with commas between, at most `most` of them, into weight; false where the text is none. */
bool flim_parse_weights(const char *text, double *weight, int most, int *n);

#endif
