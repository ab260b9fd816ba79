/* --devices as a list of devices.
 *
 * For: workers.c.  Owns: nothing; the list is the caller's.
 * Errors: FLIM_ERROR_DEVICE if "all" is asked for and there is no CUDA device.
 */
#ifndef FLIM_TRAIN_DEVICE_LIST_H
#define FLIM_TRAIN_DEVICE_LIST_H

#include "flim/string_list.h"

/* Appends what each item comes to, as --device takes it: "0,1" is cuda:0 and cuda:1, "all" each CUDA device.  The items have the
 * form that the settings' table checks.  CUDA is asked in a process of its own. */
flim_status flim_list_devices(const flim_string_list *asked, flim_string_list *out, flim_error *err);

#endif
