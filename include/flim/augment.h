/* Augmentation by name: what --augment takes, as a transform.
 *
 * An item is auto, the name of a preset, or one step: NAME, NAME:PROBABILITY or NAME:PROBABILITY:LOW:HIGH, with the operations of
 * flim/transform.h as symmetry, shift, shift_fill, shift_zero, drift, drift_fill, thin, match, background, bootstrap, scale,
 * mask_drop, blur, zoom and elastic.
 * Owns: nothing.
 * Errors: FLIM_ERROR_USAGE names the item, what was found and what was expected, and the nearest name.
 */
#ifndef FLIM_AUGMENT_H
#define FLIM_AUGMENT_H

#include "flim/string_list.h"
#include "flim/transform.h"

/* The items' steps, one after the other; "none", which stands alone, has none.
 * photons: all counts are whole numbers up to 65535: then auto is flim, else symmetry alone. */
flim_status flim_augment_parse(const flim_string_list *items, bool photons, flim_transform *out, flim_error *err);

/* "none", or the steps as items, separated by spaces: what a preset comes to.  Cut off at `size`. */
void flim_augment_text(const flim_transform *transform, char *out, size_t size);

/* The steps of which a model of the detector does not exist: "shift_zero, scale"; "" = none.  For a note. */
void flim_augment_not_physical(const flim_transform *transform, char *out, size_t size);

#endif
