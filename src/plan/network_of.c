/* The network that settings ask for, of a training or of a pretraining. */
#include "plan/plan.h"

flim_pretraining flim_pretraining_of(const flim_settings *s)
{
    return (flim_pretraining){.masked = s->mask_ratio > 0,
                              .squared = s->masked_loss == FLIM_MASKED_SQUARED,
                              .contrastive = (float)s->contrastive,
                              .by_class = s->contrastive_pairs == FLIM_PAIRS_CLASS};
}

flim_status flim_network_of(const flim_settings *s, int classes, int t, int h, int w, flim_network *out, flim_error *err)
{
    const flim_model_size size = flim_model_size_of(s->preset, s->width, s->depth);
    const flim_pretraining what = flim_pretraining_of(s);
    return s->pretrains ? flim_network_build_pretraining(out, size, classes, t, h, w, &what, err)
                        : flim_network_build_sized(out, size, classes, t, h, w, err);
}

int64_t flim_network_views(const flim_network *net)
{
    int64_t views = 1;
    for (int k = 0; k < net->n_heads; k++) {
        views = flim_loss_is_over_batch(net->head[k].loss) ? 2 : views;
    }
    return views;
}
