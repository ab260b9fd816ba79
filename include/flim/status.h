/* Status codes and error texts.
 *
 * For: every function of the library that can fail returns a flim_status and takes a flim_error beside it, as curl pairs
 *      CURLcode with CURLOPT_ERRORBUFFER.  The text is one or two lines for the user: what failed, where (file, dataset,
 *      cell, key, line), what was found, what was expected, what to do.  The library never prints and never exits.
 * Owns: nothing; a flim_error is a plain struct of the caller's, or NULL if the caller wants only the code.
 * Codes 0..6 are the exit codes of the programs and are never renumbered.
 */
#ifndef FLIM_STATUS_H
#define FLIM_STATUS_H

#include <stddef.h>

#if defined(__GNUC__)
#define FLIM_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define FLIM_PRINTF(fmt, first)
#endif

typedef enum flim_status {
    FLIM_OK = 0,
    FLIM_ERROR = 1, /* anything that has no code of its own */
    FLIM_ERROR_USAGE = 2, /* bad flag, key, value or combination; more folds than cells or groups */
    FLIM_ERROR_DATA = 3, /* bad or missing data, weights, splits or checkpoint */
    FLIM_ERROR_DEVICE = 4, /* no usable device, or the device failed */
    FLIM_ERROR_MEMORY = 5, /* host or device memory */
    FLIM_ERROR_WRITE = 6, /* a file or folder could not be written */
    FLIM_INTERRUPTED = 7, /* a signal asked for the end; the program exits with 128 + its number */
    FLIM_ERROR_NONFINITE = 8 /* loss or gradient not finite: the fold has failed, the run goes on */
} flim_status;

enum { FLIM_ERROR_TEXT = 2048 };

typedef struct flim_error {
    flim_status status;
    char text[FLIM_ERROR_TEXT]; /* one line of UTF-8; controls of what it names are shown as \n, \x1b */
} flim_error;

/* Sets code and text (printf format) and returns `status`, so that a caller can write `return flim_fail(...)`.  err may be
 * NULL.  The text may use strings that point into err->text itself. */
flim_status flim_fail(flim_error *err, flim_status status, const char *format, ...) FLIM_PRINTF(3, 4);
#ifdef __clang_analyzer__ /* tells it that what is returned is `status`, no FLIM_OK */
#define flim_fail(err, status, ...) (flim_fail((err), (status), __VA_ARGS__), (status))
#endif

/* Puts a formatted prefix before the text that err already holds ("fold 3: " ...).  Returns err->status, or FLIM_ERROR when
 * err is NULL. */
flim_status flim_fail_prefix(flim_error *err, const char *format, ...) FLIM_PRINTF(2, 3);

/* Short lower-case name of a status ("usage", "data", ...), for tests and logs. */
const char *flim_status_name(flim_status status);

#endif
