/* The checkpoint file of one fold's state.
 *
 * For: a fold; checkpoint_writer.h writes them in a thread of its own.  A checkpoint is one file, so that weights of one
 *      epoch can never stand beside moments of another: written beside the old one, fsynced, then the old one is renamed
 *      to .previous and the new one takes its place.  A SHA-256 over the whole payload and a format version stand in
 *      front.  At every moment at least one whole file exists once the first was written.
 * Owns: nothing.
 * Errors: FLIM_ERROR_WRITE; FLIM_ERROR_DATA for damaged files, FLIM_ERROR_USAGE for those of another run.
 */
#ifndef FLIM_TRAIN_CHECKPOINT_H
#define FLIM_TRAIN_CHECKPOINT_H

#include "flim/log.h"
#include "train/fold_state.h"

enum { FLIM_CHECKPOINT_VERSION = 4 }; /* of the file's format */

/* The whole file's bytes, the caller's, but for the checksum, which is left to store: that may run in another thread.
 * identity is free text that says what the checkpoint belongs to (data, splits, network, precision): one with another
 * identity is refused on reading.  What follows its first newline (versions) is for people and not compared. */
flim_status flim_checkpoint_serialise(const flim_fold_state *state, const char *identity, char **bytes, size_t *count,
                                      flim_error *err);
/* Writes them into fold_K/checkpoint, which exists. */
flim_status flim_checkpoint_store(char *bytes, size_t count, const char *folder, flim_error *err);

/* Reads the newest whole checkpoint into state (created for the same network).  identity[0] is the caller's, the others are
 * allowed, too.  *which gets the number of the one that it has, -1 if there
 * is no checkpoint.  A damaged newest one is named in `log` and the previous one is used;
 * FLIM_ERROR_DATA if neither is whole, FLIM_ERROR_USAGE if it has none of the identities.  After an error the state's
 * contents are unspecified, and it can be freed. */
flim_status flim_checkpoint_read(flim_fold_state *state, const char *folder, const char *const *identity, int n_identities,
                                 const flim_log *log, int *which, flim_error *err);

/* Removes the files of a finished fold and the folder. */
void flim_checkpoint_remove(const char *folder);

#endif
