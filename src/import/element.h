/* Numbers of a file as photon counts or labels: whole numbers from 0 to 4294967295. */
#ifndef FLIM_IMPORT_ELEMENT_H
#define FLIM_IMPORT_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct flim_element {
    char kind; /* u, i, f, or b for a byte that is 0 or 1 */
    int bytes; /* 1, 2, 4 or 8; of f: 2, 4 or 8 */
    bool big; /* the most significant byte comes first */
} flim_element;

/* `n` elements that begin `stride` bytes apart (negative is allowed), into out (n).  Returns the place of the first that is no
 * whole number from 0 to 4294967295; n if all are. */
size_t flim_elements_read(const flim_element *element, const uint8_t *at, ptrdiff_t stride, size_t n, uint32_t *out);

#endif
