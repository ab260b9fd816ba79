/* The trainer: a network on a device, with the program and the loader that train and evaluate it.
 *
 * For: the folds of train_cv, predict, and whoever else runs a network over cells of a data set.
 *      Create, build the network, compile, allocate; then epochs and evaluations.  drop goes back to before
 *      compile, for other batch sizes.
 * Owns: device, program, loader and initial weights; flim_trainer_destroy.  The data set is the caller's and outlives the
 *      loader.
 * Errors: those of device, program and loader.
 */
#ifndef FLIM_TRAIN_TRAINER_H
#define FLIM_TRAIN_TRAINER_H

#include "flim/device.h"
#include "flim/loader.h"
#include "flim/train.h"
#include "train/telemetry.h"

/* What initial weights do not give. */
typedef enum flim_fresh_tensors {
    FLIM_FRESH_NONE,
    FLIM_FRESH_LAST_LAYER, /* they are of other classes */
    FLIM_FRESH_HEAD /* they are an encoder's */
} flim_fresh_tensors;

typedef struct flim_trainer {
    flim_device *device;
    flim_precision precision;
    flim_network net;
    float *initial_parameter, *initial_statistic; /* (P), (S) to start from; NULL = random */
    flim_fresh_tensors fresh; /* what starts from random numbers all the same */
    flim_program *program;
    flim_loader *loader;
    uint8_t *cache_widths; /* (n) bytes per voxel of each cell in device memory; NULL = none is cached there */
    int64_t batch,
        accumulate; /* cells per training batch of its program, of these per update (with several ranks: of each) */
    int64_t eval_batch; /* cells per prediction batch */
    double learning_rate; /* of the first epoch */
    int64_t planned_bytes, allocated_bytes,
        free_before; /* of the device: as planned, as its free memory showed, and free before */
    flim_telemetry telemetry;
    /* Those that train this network together, each with a trainer of its own; NULL = this one alone.  Calls of rank 0 below are
     * done by all, for they are told (order.h). */
    flim_ranks *ranks;
    bool sync_batchnorm; /* the batches that the ranks train at a time are one batch, of which each has a part */
} flim_trainer;

/* Opens the device; precisions AUTO and AMP become the device's own.  *out is the caller's to destroy, after an error, too. */
flim_status flim_trainer_create(const char *device, flim_precision precision, const flim_log *log, flim_trainer *out,
                                flim_error *err);
void flim_trainer_destroy(flim_trainer *trainer); /* zeroed is allowed */

/* The device of this rank, "cuda:2", where all compute on `kind` ("cpu", "cuda"): on each host rank i of it has card i. */
void flim_device_of_rank(const flim_ranks *ranks, const char *kind, char *out, size_t size);
/* FLIM_ERROR_USAGE if two ranks have the same card.  All ranks call it together. */
flim_status flim_trainer_check_cards(const flim_trainer *trainer, flim_error *err);

/* The program for trainer->net.  options->precision is the trainer's. */
flim_status flim_trainer_compile(flim_trainer *trainer, const flim_program_options *options, flim_error *err);
/* The loader, then the program's memory. */
flim_status flim_trainer_allocate(flim_trainer *trainer, flim_dataset *dataset, const flim_loader_options *options,
                                  flim_error *err);
void flim_trainer_drop_loader(flim_trainer *trainer);
void flim_trainer_drop(flim_trainer *trainer); /* loader, program and what is known of cached cells */

/* The state of the programs: as the functions of flim/device.h. */
flim_status flim_trainer_write(flim_trainer *trainer, flim_state state, const float *values, flim_error *err);
flim_status flim_trainer_set_counters(flim_trainer *trainer, const flim_counters *counters, flim_error *err);
flim_status flim_trainer_set_totals(flim_trainer *trainer, const flim_totals *totals, flim_error *err);
flim_status flim_trainer_exchange_average(flim_trainer *trainer, flim_error *err);
/* Cells of a batch: what BatchNorm takes together. */
static inline int64_t flim_trainer_batch_cells(const flim_trainer *trainer)
{
    return trainer->batch * (trainer->sync_batchnorm ? flim_ranks_size(trainer->ranks) : 1);
}
/* Batches that all ranks train at a time: one each, or one together. */
static inline int flim_trainer_call_batches(const flim_trainer *trainer)
{
    return trainer->sync_batchnorm ? 1 : flim_ranks_size(trainer->ranks);
}
/* Batches of one update, of all ranks. */
static inline int64_t flim_trainer_update_batches(const flim_trainer *trainer)
{
    return trainer->accumulate * flim_trainer_call_batches(trainer);
}
/* This rank's part of batch number `batch` of n cells in all, if the ranks share it: from cell *from on, so many, which may be 0. */
int64_t flim_trainer_share(const flim_trainer *trainer, int64_t n, int64_t batch, int64_t *from);

/* Weights into the program; parameter: (P), statistic: (S). */
flim_status flim_trainer_load(flim_trainer *trainer, const float *parameter, const float *statistic, flim_error *err);

/* What is done with each batch of a phase, and once all of them have been given to the program.  After an error the program
 * is waited for, and finish is not called. */
typedef struct flim_phase_work {
    flim_status (*run)(void *context, const flim_batch *batch, flim_error *err); /* hands the batch to the program */
    flim_status (*after)(void *context, flim_error *err); /* the batch before has been given back; may be NULL */
    flim_status (*finish)(void *context, flim_error *err); /* waits for the program */
} flim_phase_work;

flim_status flim_trainer_run_phase(flim_trainer *trainer, const flim_phase *phase, const flim_phase_work *work, void *context,
                                   flim_error *err);

#endif
