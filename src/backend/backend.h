/* What a backend implements.  Users of devices and programs include flim/device.h only.
 *
 * A backend is a table of functions with a name; its device and program structs begin with the base structs below, so that
 * the public functions of flim/device.h can dispatch.  Optional members may be NULL and say so.  The contracts (shapes,
 * ownership, errors) are those of the flim_device_* / flim_program_* functions of the same name.
 */
#ifndef FLIM_BACKEND_H
#define FLIM_BACKEND_H

#include "backend/inspect.h"
#include "flim/device.h"

typedef struct flim_backend {
    const char *name; /* "cpu", "cuda" */
    /* Number of usable devices.  FLIM_ERROR_DEVICE with the reason where there is none. */
    flim_status (*count)(int *count, flim_error *err);
    flim_status (*open)(int index, flim_device **out, flim_error *err);
    flim_status (*describe)(const flim_card *card, flim_device **out, flim_error *err); /* may be NULL */
} flim_backend;

typedef struct flim_device_ops {
    void (*close)(flim_device *device);
    flim_status (*host_alloc)(flim_device *device, size_t bytes, void **out, bool *pinned, flim_error *err);
    void (*host_free)(flim_device *device, void *memory);
    flim_status (*compile)(flim_device *device, const flim_network *net, const flim_program_options *options,
                           flim_program **out, flim_error *err);
    flim_status (*measure_limits)(flim_device *device, flim_device_limits *out, flim_error *err); /* may be NULL */
    flim_status (*memory_free)(flim_device *device, int64_t *bytes, flim_error *err);
    void (*status)(const flim_device *device, flim_device_status *out); /* may be NULL */
    flim_status (*get_card)(const flim_device *device, flim_card *out, flim_error *err); /* may be NULL */
    /* May be NULL: every tensor of the network is stored as it is. */
    flim_status (*largest_tensor)(const flim_device *device, const flim_network *net, flim_precision precision,
                                  int64_t *elements, flim_error *err);
} flim_device_ops;

/* Where an allocated program's state lies in the memory of its device. */
typedef struct flim_state_arrays {
    float *parameters, *gradients, *moment1, *moment2; /* (P); without training only the first is there */
    float *statistics; /* (S) */
    float *average, *average_statistics; /* (P), (S); NULL without the option */
} flim_state_arrays;

typedef struct flim_program_ops {
    void (*destroy)(flim_program *program);
    flim_status (*memory)(const flim_program *program, flim_memory_plan *plan, flim_error *err);
    flim_status (*allocate)(flim_program *program, flim_error *err);
    flim_state_arrays (*states)(const flim_program *program);
    /* Copies `count` floats from and to one of these, which the caller has found. */
    flim_status (*read)(flim_program *program, const float *from, size_t count, float *out, flim_error *err);
    flim_status (*write)(flim_program *program, flim_state state, float *to, size_t count, const float *in, flim_error *err);
    flim_status (*get_counters)(flim_program *program, flim_counters *out, flim_error *err);
    flim_status (*set_counters)(flim_program *program, const flim_counters *in, flim_error *err);
    /* The batch has the program's sizes, at most the cells it was compiled for, known labels if it trains, and a transform
     * only if it is device_cached. */
    flim_status (*train)(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);
    /* The batch has the program's sizes and at most train_batch cells; 0 < share <= 1. */
    flim_status (*recalibrate)(flim_program *program, const flim_batch *batch, double share, flim_error *err);
    /* The program keeps averages. */
    flim_status (*exchange_average)(flim_program *program, flim_error *err);
    flim_status (*predict)(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);
    flim_status (*evaluate)(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);
    flim_status (*totals)(flim_program *program, bool reset, flim_totals *out, flim_error *err);
    flim_status (*set_totals)(flim_program *program, const flim_totals *in, flim_error *err);
    flim_status (*wait)(flim_program *program, flim_error *err);
    int64_t (*peak_bytes)(const flim_program *program);
    bool (*replays)(const flim_program *program); /* may be NULL: it never does */
    flim_status (*profile)(flim_program *program, flim_operation_time *out, int room, int *n,
                           flim_error *err); /* may be NULL */
    flim_status (*time_exchange)(flim_program *program, flim_exchange *out, flim_error *err); /* may be NULL */
    /* Both NULL where the device has no memory of its own (info.own_memory). */
    flim_status (*plan_cache)(flim_program *program, const flim_device_cache *cells, flim_error *err);
    flim_status (*store_cell)(flim_program *program, int64_t cell, const void *voxels, const uint8_t *mask, flim_error *err);
    /* A tensor of the last call, which has stored it or else is refused with FLIM_ERROR_USAGE; all work is finished. */
    flim_status (*read_tensor)(flim_program *program, int unit, flim_inspected what, float *out, flim_error *err);
} flim_program_ops;

/* First member of every backend's device and program. */
struct flim_device {
    const flim_device_ops *ops;
    flim_device_info info;
};

struct flim_program {
    const flim_program_ops *ops;
    flim_device *device;
    flim_network net;
    flim_program_options options; /* log, stop and cache_dir are only valid during compile; recompute: what AUTO came to */
    bool allocated;
    int64_t last_cells; /* of the last train or predict call; 0 = none yet */
    bool last_trains; /* it was a train call */
    int64_t cached_cells; /* planned by plan_cache; 0 = none */
};

/* The backends that this build may hold; src/backend/device.c lists those compiled in (FLIM_HAVE_CPU, FLIM_HAVE_CUDA). */
extern const flim_backend flim_backend_cpu;
extern const flim_backend flim_backend_cuda;

/* What the update number `update` (from 1) puts into a running average (flim_step.average_decay): 1 - d. */
static inline double flim_average_share(double decay, int64_t update)
{
    const double most = (double)update / (9.0 + (double)update);
    return 1.0 - (decay < most ? decay : most);
}

/* The norm of an update's gradient enters the totals, whose `updates` does not count it yet. */
static inline void flim_totals_add_norm(flim_totals *totals, double norm)
{
    totals->grad_norm_sum += norm;
    totals->grad_norm_least = totals->updates > 0 && totals->grad_norm_least < norm ? totals->grad_norm_least : norm;
    totals->grad_norm_most = totals->updates > 0 && totals->grad_norm_most > norm ? totals->grad_norm_most : norm;
}

/* FLIM_ERROR_USAGE, with those that it has, if the device cannot compute in that precision. */
flim_status flim_device_check_precision(const flim_device *device, flim_precision precision, flim_error *err);

/* Refuses a batch of which a tensor of so many elements per cell would have 2^31 or more. */
flim_status flim_check_tensor_size(int64_t batch, int64_t elements, flim_error *err);

/* Adds an item to a memory plan and its total; zero bytes are left out. */
void flim_memory_add(flim_memory_plan *plan, const char *name, flim_memory_place place, int64_t bytes);
/* The same for the convolutions' workspace on the device. */
void flim_memory_add_workspace(flim_memory_plan *plan, int64_t bytes);

#endif
