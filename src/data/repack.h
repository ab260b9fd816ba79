/* Rewrites any readable data file in the best layout: one cell per chunk, shuffle + gzip 4, the smallest integers that fit.
 *
 * For: flim_repack.  Several files become one; cells may be left out.  /counts, /label, /group, /name, /mask, class names and time range are kept,
 *      and what flim_import wrote of the cells (/import, /t0_shift); other objects are not, and each is named in a note.
 * Owns: nothing.  OUT.part is written, read back and compared cell by cell, then renamed to OUT; on any failure it is
 * removed.
 * Errors: FLIM_ERROR_DATA what cannot be read; FLIM_ERROR_USAGE if OUT exists; FLIM_ERROR_WRITE; FLIM_INTERRUPTED.
 */
#ifndef FLIM_REPACK_H
#define FLIM_REPACK_H

#include "flim/dataset.h"

typedef struct flim_repack_options {
    bool allow_external; /* as flim_dataset_options has it */
    const char *axes; /* of the files read; what is written is NTYX */
    int workers; /* threads that look through the cells first */
    /* Marks in left_out (info->n), all false before, the cells that are not copied, with columns and all; NULL = every cell is. */
    flim_status (*choose)(void *context, const flim_dataset_info *info, bool *left_out, flim_error *err);
    void *choose_context;
    const volatile int *stop;
    const flim_log *log;
} flim_repack_options;

typedef struct flim_repack_result {
    int64_t cells, cells_before; /* copied, and of the files read */
    int64_t bytes_before, bytes_after; /* of the files */
    const char *type; /* "uint8", "uint16", "uint32", "float32" */
} flim_repack_result;

flim_status flim_repack(const char *const *paths, int n_paths, const char *out, const flim_repack_options *options,
                        flim_repack_result *result, flim_error *err);

#endif
