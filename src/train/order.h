/* Orders: what rank 0 tells the other ranks to do.  Rank 0 runs train_cv as a process alone does; what it does with the
 * program and the loader, the others do, too (follow.h).
 *
 * For: trainer, epoch, recalibration, evaluation, which send; follow.c, which receives.
 * Owns: an order owns its bytes; flim_order_send and flim_order_free free them.  All ranks run the same program, so that
 *      structs are sent as they lie in memory, without the pointers in them.
 * Errors: FLIM_ERROR_MEMORY; those of flim/ranks.h.
 */
#ifndef FLIM_TRAIN_ORDER_H
#define FLIM_TRAIN_ORDER_H

#include <stdint.h>

#include "flim/ranks.h"

typedef enum flim_order_kind {
    FLIM_ORDER_END, /* nothing more comes */
    FLIM_ORDER_BEGIN, /* settings: open device and data */
    FLIM_ORDER_COMPILE,
    FLIM_ORDER_ALLOCATE,
    FLIM_ORDER_WRITE, /* a state of the program */
    FLIM_ORDER_COUNTERS,
    FLIM_ORDER_TOTALS,
    FLIM_ORDER_EXCHANGE, /* weights and averages */
    FLIM_ORDER_EPOCH,
    FLIM_ORDER_RECALIBRATE,
    FLIM_ORDER_EVALUATE
} flim_order_kind;

typedef struct flim_order {
    flim_order_kind kind;
    char *bytes;
    size_t used, room, at; /* at: what has been taken */
} flim_order;

/* Whether this rank has others to tell. */
static inline bool flim_leads(const flim_ranks *ranks)
{
    return flim_ranks_size(ranks) > 1 && flim_ranks_rank(ranks) == 0;
}

/* Adds to an order that is being made. */
flim_status flim_order_put(flim_order *order, const void *from, size_t bytes, flim_error *err);
/* Rank 0: to all others.  The order is freed, after an error, too. */
flim_status flim_order_send(flim_ranks *ranks, flim_order *order, flim_error *err);
/* The others: waits for the next one. */
flim_status flim_order_receive(flim_ranks *ranks, flim_order *out, flim_error *err);
/* The next bytes of it. */
flim_status flim_order_take(flim_order *order, void *to, size_t bytes, flim_error *err);
void flim_order_free(flim_order *order);

/* An order of one piece. */
flim_status flim_order_send_one(flim_ranks *ranks, flim_order_kind kind, const void *from, size_t bytes, flim_error *err);

#endif
