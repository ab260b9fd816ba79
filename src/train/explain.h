/* The passes of predict --explain: every cell with one block of its photons taken away after the other, through the ordinary forward
 * pass of whatever device the trainer has.  Private to src/train/.
 */
#ifndef FLIM_TRAIN_EXPLAIN_H
#define FLIM_TRAIN_EXPLAIN_H

#include "flim/dataset.h"
#include "flim/explanation.h"
#include "train/trainer.h"

/* Fills logits and effects of model `model` of out->models for the cells out->cell (n), with the weights that the program has.
 * Each cell as it lies, whatever symmetries its prediction is averaged over. */
flim_status flim_explain_model(flim_trainer *trainer, flim_dataset *dataset, const flim_train_hooks *hooks, int model,
                               flim_explanation *out, flim_error *err);

#endif
