/* Labels, groups, names and class names of a data set. */
#ifndef FLIM_DATA_COLUMNS_H
#define FLIM_DATA_COLUMNS_H

#include "data/dataset_internal.h"

/* Fills label, classes, class_name, group, groups, group_name and name of an open data set, and checks them
 * over all files. */
flim_status flim_columns_load(flim_dataset *dataset, const flim_dataset_options *options, flim_error *err);

#endif
