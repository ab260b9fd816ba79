/* The state of one fold's training, and its checkpoint file.
 *
 * A checkpoint is one file, so that weights of one epoch can never stand beside moments of another: written beside the old
 * one, fsynced, then the old one is renamed to .previous and the new one takes its place.  A SHA-256 over the whole payload
 * and a format version stand in front.  At every moment at least one whole file exists once the first was written.
 */
#ifndef FLIM_TRAIN_CHECKPOINT_H
#define FLIM_TRAIN_CHECKPOINT_H

#include "flim/device.h"

enum { FLIM_CHECKPOINT_VERSION = 3 }; /* of the file's format */

/* One row of history.csv.  NaN = not measured. */
typedef struct flim_epoch_row {
    int64_t epoch; /* 1-based, as users count */
    double learning_rate, train_loss, train_accuracy;
    double val_loss, val_accuracy, val_balanced_accuracy, val_f1, val_roc_auc;
    double grad_norm;
    int64_t cells, updates, skipped;
    double seconds, iterations_per_second, cells_per_second, wait_share, device_share;
    double device_busy, device_memory, device_watts, device_celsius; /* means of busy and watts, most of bytes and celsius */
    int64_t peak_bytes;
} flim_epoch_row;

typedef struct flim_fold_state {
    int64_t parameters, statistics; /* P, S */
    float *parameter, *moment1, *moment2; /* (P) */
    float *statistic; /* (S) */
    float *best_parameter, *best_statistic; /* (P), (S) */
    int64_t epoch; /* 0-based: in progress, or the next one */
    int64_t calls; /* training batches of it already done */
    int64_t batch, accumulate; /* what calls are counted in */
    int64_t skipped_before; /* counters.skipped when the epoch began */
    bool finished; /* no epoch is left; only the evaluation is */
    flim_counters counters;
    flim_totals totals; /* of the epoch in progress */
    double best_value; /* of the monitor */
    int64_t best_epoch; /* 0-based, -1 = none yet */
    int64_t n_history, history_capacity; /* reading a longer history makes room for it */
    flim_epoch_row *history; /* (n_history) */
} flim_fold_state;

flim_status flim_fold_state_create(const flim_network *net, int64_t epochs, flim_fold_state *out, flim_error *err);
void flim_fold_state_free(flim_fold_state *state); /* leaves it zeroed; zeroed is allowed */

/* A thread that writes checkpoints, so that training does not wait for the disk.  One fold at a time. */
typedef struct flim_checkpoint_writer flim_checkpoint_writer;

flim_status flim_checkpoint_writer_create(flim_checkpoint_writer **out, flim_error *err);
/* Waits for the write under way, drops its error if flush was not called, and joins the thread.  NULL is allowed. */
void flim_checkpoint_writer_destroy(flim_checkpoint_writer *writer);

/* Copies the state and returns; the thread writes it.  folder is fold_K/checkpoint, which exists.  identity is free text that
 * says what the checkpoint belongs to (data, splits, network, precision): one with another identity is refused on reading.
 * What follows its first newline (versions) is for people and not compared.
 * Waits first for the write under way and returns its error, if it had one. */
flim_status flim_checkpoint_submit(flim_checkpoint_writer *writer, const flim_fold_state *state, const char *folder,
                                   const char *identity, flim_error *err);
/* Waits until everything submitted is on disk; the error of the last write. */
flim_status flim_checkpoint_flush(flim_checkpoint_writer *writer, flim_error *err);

/* The same at once, in the calling thread. */
flim_status flim_checkpoint_write(const flim_fold_state *state, const char *folder, const char *identity, flim_error *err);

/* Reads the newest whole checkpoint into state (created for the same network).  identity[0] is the caller's, the others are
 * allowed, too.  *found = false where there is none.  A damaged newest one is named in `log` and the previous one is used;
 * FLIM_ERROR_DATA where neither is whole, FLIM_ERROR_USAGE where it has none of the identities.  After an error the state's
 * contents are unspecified, and it can be freed. */
flim_status flim_checkpoint_read(flim_fold_state *state, const char *folder, const char *const *identity, int n_identities,
                                 const flim_log *log, bool *found, flim_error *err);

/* Removes the files of a finished fold and the folder. */
void flim_checkpoint_remove(const char *folder);

#endif
