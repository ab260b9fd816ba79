/* Numbers as a file stores them, and how counts become the network's input.  No HDF5 here.
 *
 * A cell arrives as raw bytes of one number type.  flim_number_native undoes the shuffle filter and the byte order; the
 * conversions check every value (finite, 0 <= value <= FLIM_COUNT_LIMIT) and report the first bad one by its index.
 */
#ifndef FLIM_DATA_NUMBER_H
#define FLIM_DATA_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No photon count comes near; what does is a negative number read as unsigned, or damage. */
#define FLIM_COUNT_LIMIT 2147483647.0
#define FLIM_TABLE_SIZE 65536

typedef enum flim_number_kind { FLIM_UNSIGNED, FLIM_SIGNED, FLIM_FLOAT } flim_number_kind;

typedef struct flim_number {
    flim_number_kind kind;
    size_t size; /* bytes: 1, 2, 4, 8; floats 2, 4, 8 (IEEE) */
    bool swapped; /* stored in the byte order that this machine has not */
} flim_number;

/* raw (count x size bytes) -> values in this machine's order; `shuffled`: raw holds all first bytes, then all second bytes,
 * ... (HDF5's shuffle filter).  raw and values must not overlap. */
void flim_number_native(flim_number number, bool shuffled, const uint8_t *raw, int64_t count, void *values);
/* Byte order alone, in place. */
void flim_number_swap(flim_number number, int64_t count, void *values);

/* Native values -> float counts.  Returns the index of the first value that is no count, or -1. */
int64_t flim_number_counts(flim_number number, const void *values, int64_t count, float *out);
/* Native values -> float32(log1p(counts)) / 10.  table: flim_signal_table's.  Returns as above. */
int64_t flim_number_signal(flim_number number, const void *values, int64_t count, const float *table, float *out);
/* mask[p] = 1 where any of values (frames, pixels) holds a photon, for checked unsigned integers of 1 or 2 bytes, or floats
 * of 4 as flim_number_counts and _signal make them.  seen: scratch of `pixels` words. */
void flim_number_mask(flim_number number, const void *values, int64_t frames, int64_t pixels, uint32_t *seen, uint8_t *mask);
/* Bytes that a voxel of checked counts needs: 1 or 2 as an unsigned integer, 4 where only a float holds them all. */
int flim_counts_bytes(const float *counts, int64_t count);
/* Counts -> uint8 or uint16, as flim_counts_bytes allows. */
void flim_counts_narrow(const float *counts, int64_t count, int bytes, void *out);
/* A value for an error text. */
double flim_number_at(flim_number number, const void *values, int64_t index);

/* table[i] = the signal of i counts, i < FLIM_TABLE_SIZE; equal to flim_signal_from_counts bit for bit. */
void flim_signal_table(float *table);

#endif
