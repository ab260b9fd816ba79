/* Small networks beside the published one: transposed units, dense heads, several heads, none; and the pieces they are built of. */
#ifndef REFERENCE_NETWORKS_H
#define REFERENCE_NETWORKS_H

#include "flim/network.h"

enum { REF_CLASSES = 3 };

typedef void ref_build_network(flim_network *net);

/* Two units: stride 2 in time, and back to a dense head. */
ref_build_network ref_autoencoder;
/* Odd sizes, other strides, and a transposed unit with BatchNorm, activation, dropout and a skip; only the mask's voxels count. */
ref_build_network ref_masked_autoencoder;
/* One head in the middle, where units read on, and two at the end; two of them with soft targets. */
ref_build_network ref_three_heads;
/* The same with class weights. */
ref_build_network ref_class_weights;
/* A classifier and a reconstruction that share their encoder. */
ref_build_network ref_two_tasks;
/* Preset nano as it is pretrained: hidden counts and pairs of views; hidden signal and pairs of a class. */
ref_build_network ref_pretraining;
ref_build_network ref_pretraining_by_class;
/* One unit and no head. */
ref_build_network ref_features;

/* BatchNorm and activation, padded to keep the size at stride 1; kernel (kt,ks,ks), stride (stride_t,stride_s,stride_s). */
flim_unit ref_new_unit(const char *name, int input, int channels, int kt, int ks, int stride_t, int stride_s);
/* A transposed unit from the one before to one channel of the input's size, without BatchNorm and activation. */
flim_unit ref_decoder(const flim_network *net, int kt, int ks, int stride_t, int stride_s);
void ref_add_unit(flim_network *net, flim_unit unit);
void ref_add_head(flim_network *net, const char *name, int at, flim_loss loss, float weight);
void ref_finish(flim_network *net);

#endif
