#include "cuda/conv/conv_choice.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_WORKSPACE = 256 << 20 };

const flim_conv_algorithm *const flim_conv_algorithms[FLIM_CONV_ALGORITHMS] = {
    &flim_conv_fused_stem, &flim_conv_fused_3x3x3, &flim_conv_wgrad_narrow, &flim_conv_wgrad_wgmma,  &flim_conv_wgrad_3x3x3,
    &flim_conv_wgmma,      &flim_conv_fp32,        &flim_conv_cudnn,        &flim_conv_cudnn_flipped};

int64_t flim_conv_workspace_limit(const flim_conv_search_options *options)
{
    return options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
}

bool flim_conv_never_guessed(const flim_conv_problem *problem, const flim_card *card)
{
    (void)problem, (void)card;
    return false;
}

bool flim_conv_is_candidate(const flim_conv_algorithm *algorithm, const flim_conv_problem *problem, const flim_card *card,
                            const flim_conv_search_options *options)
{
    return !(options->without && strcmp(options->without, algorithm->name) == 0) && algorithm->supported(problem, card) &&
           (options->benchmark || !algorithm->guess || algorithm->guess(problem, card));
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
