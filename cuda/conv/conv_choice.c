#include "cuda/conv/conv_choice.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_WORKSPACE = 256 << 20 };

const flim_conv_algorithm *const flim_conv_algorithms[FLIM_CONV_ALGORITHMS] = {
    &flim_conv_fused_stem,  &flim_conv_fused_3x3x3, &flim_conv_wgrad_narrow, &flim_conv_wgrad_wgmma,
    &flim_conv_wgrad_3x3x3, &flim_conv_wgmma,       &flim_conv_strided,      &flim_conv_1x1x1,
    &flim_conv_wgrad_1x1x1, &flim_conv_fp32,        &flim_conv_cudnn,        &flim_conv_cudnn_flipped};

int64_t flim_conv_workspace_limit(const flim_conv_search_options *options)
{
    return options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
}

bool flim_conv_not_first(const flim_conv_problem *problem, const flim_card *card)
{
    (void)problem, (void)card;
    return false;
}

int flim_conv_candidates(const flim_conv_problem *problem, const flim_card *card, const flim_conv_search_options *options,
                         const flim_conv_algorithm *out[FLIM_CONV_ALGORITHMS])
{
    int n = 0;
    for (int first = 1; first >= 0; first--) {
        for (int i = 0; i < FLIM_CONV_ALGORITHMS; i++) {
            const flim_conv_algorithm *a = flim_conv_algorithms[i];
            if (!a->supported(problem, card) || (options->without && strcmp(options->without, a->name) == 0)) {
                continue;
            }
            const bool guess = options->benchmark || !a->guess || a->guess(problem, card);
            if (guess == (first == 1)) {
                out[n++] = a;
            }
        }
    }
    return n;
}

bool flim_conv_is_guessed(const flim_conv_problem *problem, const flim_card *card)
{
    bool guessed = false;
    for (int i = 0; i < FLIM_CONV_ALGORITHMS; i++) {
        const flim_conv_algorithm *a = flim_conv_algorithms[i];
        guessed = guessed || (a->supported(problem, card) && (!a->guess || a->guess(problem, card)));
    }
    return guessed;
}

bool flim_conv_gathers(const flim_conv_problem *problem, const flim_card *card)
{
    bool gathers = false;
    for (int i = 0; i < FLIM_CONV_ALGORITHMS; i++) {
        const flim_conv_algorithm *a = flim_conv_algorithms[i];
        gathers = gathers || (a->gathers && a->supported(problem, card) && a->gathers(problem, card));
    }
    return gathers;
}

bool flim_conv_fits(const flim_conv_choice *candidate, const flim_conv_search_options *options)
{
    return candidate->algorithm->fused || candidate->workspace <= flim_conv_workspace_limit(options);
}

flim_status flim_conv_offer_one(const flim_conv_choice *base, size_t workspace, flim_conv_offer *offer, void *to)
{
    flim_conv_choice c = *base;
    c.workspace = (int64_t)workspace;
    snprintf(c.engine, sizeof c.engine, "%s", base->algorithm->name);
    (void)offer(to, &c);
    return FLIM_OK;
}

flim_status flim_conv_run(struct flim_cuda_device *device, const flim_conv_choice *choice,
                          const flim_conv_arguments *arguments, flim_error *err)
{
    return choice->algorithm->run(device, choice, arguments, err);
}
