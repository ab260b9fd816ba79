/* A cell's identity (flim/random.h) in the words that the kernels read: seed low, seed high, fold, epoch, cell, repeat. */
#ifndef FLIM_CUDA_CELL_WORDS_H
#define FLIM_CUDA_CELL_WORDS_H

#include "flim/random.h"

enum { FLIM_CELL_WORDS = 6 };

static inline void flim_cell_words(const flim_cell_id *id, uint32_t words[FLIM_CELL_WORDS])
{
    words[0] = (uint32_t)id->seed;
    words[1] = (uint32_t)(id->seed >> 32);
    words[2] = id->fold;
    words[3] = id->epoch;
    words[4] = id->cell;
    words[5] = id->repeat;
}

#endif
