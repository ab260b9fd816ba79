/* What a caller of flim_train_cv says of its call.  Private to src/train/. */
#ifndef FLIM_TRAIN_HOOKS_H
#define FLIM_TRAIN_HOOKS_H

#include "flim/string_list.h"
#include "flim/train.h"

/* A flag or --set of the call gave the key. */
static inline bool flim_is_explicit(const flim_train_hooks *hooks, const char *key)
{
    return hooks->explicit_keys && flim_string_list_find(hooks->explicit_keys, key) >= 0;
}

#endif
