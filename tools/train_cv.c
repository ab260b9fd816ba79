/* train_cv: cross-validated training of a FLIM data set.  Everything happens in flim_train_cv (flim/train.h). */
#include "common/train.h"

int main(int argc, char **argv)
{
    return run_training("train_cv", flim_settings_init, argc, argv);
}
