/* The one text for a program that the memory of its device does not hold: what it needs, what is free, and what to do. */
#ifndef FLIM_BACKEND_SHORTAGE_H
#define FLIM_BACKEND_SHORTAGE_H

#include "backend/backend.h"

typedef struct flim_shortage {
    int64_t needed, available; /* bytes */
    int64_t total; /* bytes of the memory; 0 = not said */
    int64_t fits; /* cells of the largest batch that would fit; < 1 = not even one */
    const char *beside; /* what else is in that memory, appended; "" = nothing */
} flim_shortage;

/* FLIM_ERROR_MEMORY. */
flim_status flim_fail_shortage(const flim_program *program, const flim_shortage *shortage, flim_error *err);

#endif
