/* The files that flim_bench writes.
 *
 * For: the subcommands.  A file of figures is replaced by one of its kind only; weights never replace anything.
 * Errors: FLIM_ERROR_USAGE and FLIM_ERROR_WRITE of core/output.h.
 */
#ifndef FLIM_BENCH_OUTPUT_H
#define FLIM_BENCH_OUTPUT_H

#include "flim/network.h"
#include "formats/json.h"

enum { FLIM_BENCH_SIZE_TEXT = 48 };

/* begins: how such a file begins. */
flim_status flim_bench_write_json(const flim_json *json, const char *path, const char *begins, flim_error *err);
/* Before the work: a file of weights must be new.  "" is no file. */
flim_status flim_bench_check_weights(const char *path, flim_error *err);

/* "base"; "w48 d2" for a size without a name. */
const char *flim_bench_size_text(const flim_network *net, char text[FLIM_BENCH_SIZE_TEXT]);
/* Sets preset, width and depth. */
void flim_bench_set_size(flim_json *object, const flim_network *net);

#endif
