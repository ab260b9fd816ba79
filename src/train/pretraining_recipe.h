/* What the settings of a pretraining come to.
 *
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_TRAIN_PRETRAINING_RECIPE_H
#define FLIM_TRAIN_PRETRAINING_RECIPE_H

#include "cv/pairs.h"
#include "flim/device.h"
#include "flim/settings.h"

flim_pairs_rule flim_pretraining_pairs(const flim_settings *settings);
/* Draws of a cell per epoch. */
static inline int64_t flim_pretraining_views(const flim_settings *settings)
{
    return settings->pretrains && settings->contrastive > 0 ? 2 : 1;
}
/* flim_step.hide_share of the settings. */
uint32_t flim_pretraining_hide_share(const flim_settings *settings);
/* Bits per photon above the baseline; NaN without photons, and where the loss is none of counts. */
double flim_pretraining_bits(const flim_settings *settings, const flim_hidden_totals *totals);

#endif
