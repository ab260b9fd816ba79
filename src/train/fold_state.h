/* The state of one fold's training: what a checkpoint holds, and what goes on from one epoch to the next.
 *
 * Owns: its arrays; free with flim_fold_state_free.  Errors: FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_TRAIN_FOLD_STATE_H
#define FLIM_TRAIN_FOLD_STATE_H

#include "cv/metrics/welch.h"
#include "flim/device.h"

/* One row of history.csv.  NaN = not measured. */
typedef struct flim_epoch_row {
    int64_t epoch; /* 1-based, as users count */
    double learning_rate, train_loss, train_accuracy;
    double val_loss, val_accuracy, val_balanced_accuracy, val_f1, val_roc_auc;
    double grad_norm; /* of the last update */
    double grad_norm_mean, grad_norm_least, grad_norm_most; /* of all updates; NaN without any */
    int64_t cells, updates, skipped;
    double seconds, iterations_per_second, cells_per_second, wait_share, device_share;
    double device_busy, device_memory, device_watts, device_celsius; /* means of busy and watts, most of bytes and celsius */
    int64_t peak_bytes;
    /* With --diagnostics: sd (ddof 1) and largest of the batches' mean losses; train/activations.h; norm of what the epoch has
     * changed of the weights over that of the weights before. */
    double batch_loss_sd, batch_loss_most, inactive, dead, update_size;
    /* of pretrainings: mean loss of a hidden voxel and bits per photon above the baseline, in training and of the cells that are
     * only evaluated; train_accuracy is then how many partners were found */
    double hidden_loss, hidden_bits, val_hidden_loss, val_hidden_bits;
} flim_epoch_row;

/* Batches of an epoch so far, by their mean losses. */
typedef struct flim_batch_losses {
    flim_moments moments;
    double most;
} flim_batch_losses;

typedef struct flim_fold_state {
    int64_t parameters, statistics; /* P, S */
    float *parameter, *moment1, *moment2; /* (P) */
    float *statistic; /* (S) */
    float *best_parameter, *best_statistic; /* (P), (S) */
    float *average_parameter, *average_statistic; /* (P), (S); NULL unless flim_fold_state_add_average made them */
    bool averaged; /* they hold averages */
    float
        *epoch_parameter; /* (P) weights when the epoch began; NULL unless flim_fold_state_add_diagnostics made room: then */
    flim_batch_losses losses; /* of the epoch in progress; checkpoints hold both, and longer rows */
    bool pretrains; /* of a network that is pretrained: totals and rows have what hidden voxels came to */
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
/* FLIM_ERROR_DATA if a number is out of its range, or numbers contradict each other, as training could not have left them: what
 * was read is not believed before.  Arrays are not looked at. */
flim_status flim_fold_state_check(const flim_fold_state *state, flim_error *err);
/* Makes room for running averages of the weights. */
flim_status flim_fold_state_add_average(flim_fold_state *state, flim_error *err);
/* Averages that do not hold anything yet begin as the weights; nothing without room for them. */
void flim_fold_state_begin_average(flim_fold_state *state);
/* Makes room for what --diagnostics keeps of an epoch. */
flim_status flim_fold_state_add_diagnostics(flim_fold_state *state, flim_error *err);
/* The epoch begins with the state's parameters; nothing without that room. */
void flim_fold_state_begin_epoch(flim_fold_state *state);
void flim_fold_state_free(flim_fold_state *state); /* leaves it zeroed; zeroed is allowed */

#endif
