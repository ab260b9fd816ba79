/* A thread that writes checkpoints, so that training does not wait for the disk.  One fold at a time.
 *
 * Owns: what was submitted and is not written yet; flim_checkpoint_writer_destroy.
 * Errors: those of a write are returned by the next submit or flush.
 */
#ifndef FLIM_TRAIN_CHECKPOINT_WRITER_H
#define FLIM_TRAIN_CHECKPOINT_WRITER_H

#include "train/fold_state.h"

typedef struct flim_checkpoint_writer flim_checkpoint_writer;

flim_status flim_checkpoint_writer_create(flim_checkpoint_writer **out, flim_error *err);
/* Waits for the write under way, drops its error if flush was not called, and joins the thread.  NULL is allowed. */
void flim_checkpoint_writer_destroy(flim_checkpoint_writer *writer);

/* Copies the state and returns; the thread writes it (checkpoint.h says what folder and identity are).  Waits first for the
 * write under way and returns its error, if it had one. */
flim_status flim_checkpoint_submit(flim_checkpoint_writer *writer, const flim_fold_state *state, const char *folder,
                                   const char *identity, flim_error *err);
/* Waits until everything submitted is on disk; the error of the last write. */
flim_status flim_checkpoint_flush(flim_checkpoint_writer *writer, flim_error *err);

#endif
