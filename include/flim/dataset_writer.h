/* Writes a data file (docs/file-format.md) in its best layout: one cell per chunk, shuffle + gzip 4, unsigned integers.
 *
 * For: flim_simulate, flim_repack, flim_import, tests.  Cells may come in any order, each once; threads pack them while the
 *      next ones are made.  Equal calls give equal bytes (no time stamps) with the same libraries on the same machine.
 * Owns: the writer copies what it needs from the layout when it is created.  A file of its own name beside PATH is written
 *      and renamed to PATH by finish; destroy before finish removes it.  A file that is at PATH already is never replaced.
 * Errors: FLIM_ERROR_USAGE if PATH exists; FLIM_ERROR_WRITE with path and reason; FLIM_ERROR_MEMORY.  One thread at a time.
 */
#ifndef FLIM_DATASET_WRITER_H
#define FLIM_DATASET_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/status.h"

typedef struct flim_dataset_writer flim_dataset_writer;

typedef struct flim_dataset_layout {
    int64_t n; /* cells */
    int t, h, w;
    int count_bytes; /* 1, 2 or 4: uint8, uint16, uint32 */
    bool count_float; /* float32 instead, count_bytes 4: counts that are not whole */
    bool mask; /* write /mask */
    int classes; /* entries of class_name; 0 = no class_names attribute */
    const char *const *class_name; /* (classes) */
    const int32_t *label; /* (n), or NULL = no /label */
    const char *const *group; /* (n) strings, or NULL */
    const int64_t *group_number; /* (n) where groups are integers and `group` is NULL, or NULL = no /group */
    const char *const *name; /* (n), or NULL = no /name */
    double time_range_ns; /* 0 = no such attribute */
    const char *note; /* attribute "note": where the data comes from; or NULL */
} flim_dataset_layout;

flim_status flim_dataset_writer_create(const char *path, const flim_dataset_layout *layout, flim_dataset_writer **out,
                                       flim_error *err);
/* Where the counts of the next cell may be made, unset, (T,H,W) of the layout's count_bytes: the writer's, until that cell is
 * written with this address as its counts, which saves a copy. */
flim_status flim_dataset_writer_room(flim_dataset_writer *writer, void **counts, flim_error *err);
/* counts: (T,H,W) of the layout's count_bytes; mask: (H,W), non-zero = inside; NULL exactly where the layout has none. */
flim_status flim_dataset_writer_cell(flim_dataset_writer *writer, int64_t cell, const void *counts, const uint8_t *mask,
                                     flim_error *err);
/* Values beside those of the file format: a dataset NAME ("t0_shift", "import/path") of n numbers or texts, before close. */
flim_status flim_dataset_writer_add_numbers(flim_dataset_writer *writer, const char *name, const int64_t *value, int64_t n,
                                            flim_error *err);
flim_status flim_dataset_writer_add_texts(flim_dataset_writer *writer, const char *name, const char *const *text, int64_t n,
                                          flim_error *err);
/* Ends the writing of a file in which every cell has come; until finish or destroy it can be read at *path, which is the
 * writer's. */
flim_status flim_dataset_writer_close(flim_dataset_writer *writer, const char **path, flim_error *err);
/* Closes, syncs and renames.  On failure nothing is left behind. */
flim_status flim_dataset_writer_finish(flim_dataset_writer *writer, flim_error *err);
void flim_dataset_writer_destroy(flim_dataset_writer *writer); /* NULL is allowed */

#endif
