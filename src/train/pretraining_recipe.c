#include "train/pretraining_recipe.h"

#include <math.h>

#include "data/hide_math.h"

flim_pairs_rule flim_pretraining_pairs(const flim_settings *s)
{
    return (flim_pairs_rule){s->contrastive > 0, s->contrastive_pairs, s->batch_from, s->batch};
}

uint32_t flim_pretraining_hide_share(const flim_settings *s)
{
    return (uint32_t)(s->mask_ratio * FLIM_HIDE_WHOLE + 0.5);
}

double flim_pretraining_bits(const flim_settings *s, const flim_hidden_totals *t)
{
    return s->masked_loss == FLIM_MASKED_POISSON && t->photons > 0 ? (t->baseline - t->loss) / t->photons / log(2.0)
                                                                   : (double)NAN;
}
