/* pretrain: the encoder of a classifier, trained without labels.  Everything happens in flim_train_cv (flim/train.h). */
#include "common/train.h"

int main(int argc, char **argv)
{
    return run_training("pretrain", flim_settings_init_pretraining, argc, argv);
}
