/* Items in the order of a key: those of one class, group or table cell lie one after the other.
 *
 * For: samplers, pairs and mixup, which draw within classes and groups.  A counting sort: linear in items and keys, and items of
 *      equal keys keep their order, so that what is drawn does not depend on the sort.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_CV_SORT_BY_KEY_H
#define FLIM_CV_SORT_BY_KEY_H

#include <stdint.h>

/* item (n) into sorted (n), another array, by key[item[i]], which is 0..keys-1; those of key k are sorted[start[k]] to
 * sorted[start[k + 1] - 1].  start: (keys + 1), whatever it holds. */
void flim_sort_by_key(const int64_t *item, int64_t n, const int64_t *key, int64_t keys, int64_t *start, int64_t *sorted);

#endif
