/* The letters that are a letter and a combining mark in one: for comparing texts, whichever way they write it. */
#ifndef FLIM_CORE_DECOMPOSITIONS_H
#define FLIM_CORE_DECOMPOSITIONS_H

#include <stddef.h>
#include <stdint.h>

/* (flim_n_decompositions) letter, its base (which may be made of two itself), its mark; in order of the letter. */
extern const uint16_t flim_decomposition[][3];
extern const size_t flim_n_decompositions;

#endif
