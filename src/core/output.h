/* What a program may write at a path that its user names.
 *
 * For: predict --out, fold_metrics --csv, flim_info --json and the like.  Never overwritten: what this call reads, HDF5 files,
 *      weights, checkpoints, and the files of a run.  Other files are if their beginning shows that the program itself made
 *      them, if they are empty, or if the user says so (--force).  Devices, pipes and "-" are written into (core/file.h).
 * Owns: nothing; the texts and lists must outlive the call.
 * Errors: FLIM_ERROR_USAGE if the path is not to be written, with what stands there; FLIM_ERROR_WRITE.
 */
#ifndef FLIM_CORE_OUTPUT_H
#define FLIM_CORE_OUTPUT_H

#include "core/file.h"

typedef struct flim_output {
    const char *path;
    const char *kind; /* "a table of fold_metrics", for messages */
    const char *begins; /* how such a file begins; NULL = what is there stays, whatever it is */
    bool seeks; /* the writer goes back in the file, as HDF5 does */
    const char *const *input; /* (n_inputs) files that this call reads or writes besides */
    int n_inputs;
    bool force;
    const volatile int *stop; /* ends the wait for a pipe's reader; may be NULL */
} flim_output;

/* Before the work whose result is to be written: fails as begin would afterwards.  Leaves everything as it is. */
flim_status flim_output_check(const flim_output *output, flim_error *err);
/* A writer, to be ended with flim_file_commit or flim_file_abandon. */
flim_status flim_output_begin(const flim_output *output, flim_file_writer *writer, flim_error *err);
/* Whether a file that is there may be replaced at all: FLIM_ERROR_USAGE for the kinds that never are. */
flim_status flim_output_check_kind(const char *path, flim_error *err);

#endif
