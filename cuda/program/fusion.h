/* Which units are fused with others, and what is recomputed: decided before there are buffers or operations.
 *
 * Saved for the backward pass of a unit is z, the convolution's output.  y is stored only if something must read it:
 *   - a unit without activation whose only reader adds it as a skip (the 1x1x1 skips) is fused into its reader
 *   (FLIM_FUSION_SKIP);
 *   - readers apply BatchNorm and activation as they load z, if all can (FLIM_FUSION_ON_LOAD);
 *   - the first two units (stem, down) are one kernel if conv_stem.h has it (FLIM_FUSION_STEM); if that has the stem alone, it
 *   has y and no z (FLIM_FUSION_STEM_ALONE).
 * A convolution of conv3x3x3.h hands the sums over its output to BatchNorm, and in the backward pass those that the unit before it needs
 * (gradient_from), so that both need no pass of their own.  Of other convolutions (conv_choice.h):
 *   - forward, those for which an algorithm gathers the sums;
 *   - backward, through a unit that is BatchNorm and activation only, those for which an algorithm has the epilogue and its sums;
 *   - backward, through a unit that adds a skip, by the sign mask that this leaves, with the compact gradient of the next skip added
 *     (conv_strided.h).  The result is that unit's dv as well, what it gives to its own skip.
 * With activation checkpointing less is kept (flim_recompute_set):
 *   - y that only weight gradients read is written again by the pass that sums its gradient, which has z at hand, or, if there is no such
 *     pass, by the epilogue, before the backward pass of the block that reads it;
 *   - a recomputed block keeps only tensors that other blocks read; its convolutions run again before its backward pass, with
 *     BatchNorm's statistics of the first time, so that the bits are the same.
 *
 * For: schedule_build.c, in this order: find, [search for weight gradients], find_outputs, [search for the others], find_recomputed.
 * Owns: nothing.
 */
#ifndef FLIM_CUDA_FUSION_H
#define FLIM_CUDA_FUSION_H

#include "cuda/program/schedule.h"

/* Kernels for more than a convolution on a card, fused skips, the stem. */
void flim_fusion_find(flim_schedule *schedule, const flim_card *card);
/* Which units need no y, and which gradients come with a data gradient.  Needs the choices of the weight gradients. */
void flim_fusion_find_outputs(flim_schedule *schedule, const flim_card *card);
/* What is recomputed rather than kept. */
void flim_fusion_find_recomputed(flim_schedule *schedule, const flim_recompute_set *set);

/* How the convolutions of unit u take x: forward, and in its weight gradient. */
flim_input_form flim_fusion_forward_form(const flim_schedule *schedule, int u);
flim_input_form flim_fusion_weight_form(const flim_schedule *schedule, int u);
/* How unit u takes what it adds. */
flim_input_form flim_fusion_skip_form(const flim_schedule *schedule, int u);
/* The forward kernel of unit u adds the bias, takes the parameters as they are and gathers BatchNorm's sums. */
bool flim_fusion_forward_fused(const flim_schedule *schedule, int u);
/* dz of unit u is never stored: its reader applies BatchNorm's backward pass as it loads du. */
bool flim_fusion_gradient_on_load(const flim_schedule *schedule, int u);
/* The forward pass notes the signs of what the activation sees, so that the backward pass need not add the skip again. */
bool flim_fusion_has_sign_mask(const flim_schedule *schedule, int u);
/* Unit u adds a skip, and its gradient comes through its activation by the sign mask.  If its z is recomputed, its block is before that
 * data gradient, not before its own backward pass. */
bool flim_fusion_by_mask(const flim_schedule *schedule, int u);
/* Of a unit whose z is recomputed: its y goes with it, and something in the block still reads it. */
bool flim_fusion_recomputes_y(const flim_schedule *schedule, int u);
/* Heads that read unit u. */
int flim_fusion_heads_of(const flim_network *net, int u);
/* A strided 1x1x1 convolution without padding: its input gradient is computed on the strided grid. */
bool flim_fusion_compact_dx(const flim_unit *unit);

/* The convolution problem of a unit in one direction. */
flim_conv_problem flim_fusion_problem(const flim_unit *unit, flim_conv_op op, flim_storage type, int64_t batch,
                                      bool deterministic);

/* The same with what the schedule fuses into it. */
flim_conv_problem flim_fusion_unit_problem(const flim_schedule *schedule, int u, flim_conv_op op);

#endif
