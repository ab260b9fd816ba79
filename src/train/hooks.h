/* What a caller of flim_train_cv says of its call.  Private to src/train/. */
#ifndef FLIM_TRAIN_HOOKS_H
#define FLIM_TRAIN_HOOKS_H

#include <string.h>

#include "flim/train.h"

/* A flag or --set of the call gave the key. */
static inline bool flim_is_explicit(const flim_train_hooks *hooks, const char *key)
{
    for (int i = 0; hooks->explicit_keys && i < hooks->explicit_keys->n; i++) {
        if (strcmp(hooks->explicit_keys->item[i], key) == 0) {
            return true;
        }
    }
    return false;
}

#endif
