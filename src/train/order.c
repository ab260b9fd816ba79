#include "train/order.h"

#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

flim_status flim_order_put(flim_order *order, const void *from, size_t bytes, flim_error *err)
{
    if (bytes > order->room - order->used) {
        const size_t room = 2 * order->room + bytes + 4096;
        char *more = flim_realloc(order->bytes, room, 1, err);
        FLIM_TRY(more ? FLIM_OK : FLIM_ERROR_MEMORY);
        order->bytes = more;
        order->room = room;
    }
    if (bytes > 0) {
        memcpy(order->bytes + order->used, from, bytes);
    }
    order->used += bytes;
    return FLIM_OK;
}

/* What goes ahead of the bytes. */
typedef struct head {
    int64_t kind, bytes;
} head;

flim_status flim_order_send(flim_ranks *ranks, flim_order *order, flim_error *err)
{
    head h = {order->kind, (int64_t)order->used};
    flim_status status = flim_ranks_await(ranks, &h, sizeof h, err);
    if (status == FLIM_OK && order->used > 0) {
        status = flim_ranks_broadcast(ranks, order->bytes, order->used, err);
    }
    flim_order_free(order);
    return status;
}

flim_status flim_order_receive(flim_ranks *ranks, flim_order *out, flim_error *err)
{
    head h = {0};
    *out = (flim_order){0};
    FLIM_TRY(flim_ranks_await(ranks, &h, sizeof h, err));
    out->kind = (flim_order_kind)h.kind;
    out->used = out->room = (size_t)h.bytes;
    out->bytes = flim_alloc(out->used, 1, err);
    FLIM_TRY(out->bytes ? FLIM_OK : FLIM_ERROR_MEMORY);
    return out->used > 0 ? flim_ranks_broadcast(ranks, out->bytes, out->used, err) : FLIM_OK;
}

flim_status flim_order_take(flim_order *order, void *to, size_t bytes, flim_error *err)
{
    if (bytes > order->used - order->at) {
        return flim_fail(err, FLIM_ERROR,
                         "internal: an order of %zu bytes ends too early: do all ranks run the same program?", order->used);
    }
    if (bytes > 0) {
        memcpy(to, order->bytes + order->at, bytes);
    }
    order->at += bytes;
    return FLIM_OK;
}

void flim_order_free(flim_order *order)
{
    flim_free(order->bytes);
    *order = (flim_order){0};
}

flim_status flim_order_send_one(flim_ranks *ranks, flim_order_kind kind, const void *from, size_t bytes, flim_error *err)
{
    flim_order order = {.kind = kind};
    const flim_status status = flim_order_put(&order, from, bytes, err);
    if (status != FLIM_OK) {
        flim_order_free(&order);
        return status;
    }
    return flim_order_send(ranks, &order, err);
}
