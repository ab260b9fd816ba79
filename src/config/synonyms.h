/* Flags by the names that other programs give them.
 *
 * For: the hint of an unknown flag or key: by meaning, where spelling would lead elsewhere.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_CONFIG_SYNONYMS_H
#define FLIM_CONFIG_SYNONYMS_H

#include "flim/flags.h"

/* The row that means what `name` (a flag without its dashes or a key, in any case, with - or _) means elsewhere, else the one
 * whose name is nearest in spelling, else NULL. */
const flim_flag_row *flim_flag_meant(const flim_flag_table *table, const char *name);

#endif
