/* One control flow for every call that can fail.
 *
 * For: functions that return flim_status.  FLIM_TRY leaves at once: for a function that owns nothing yet.  FLIM_TRY_DONE goes
 *      to the function's one clean-up path: it needs `flim_status status` and a label `done` in scope.
 */
#ifndef FLIM_CORE_TRY_H
#define FLIM_CORE_TRY_H

#include "flim/status.h"

#define FLIM_TRY(call)                                                                                                       \
    do {                                                                                                                     \
        const flim_status tried_ = (call);                                                                                   \
        if (tried_ != FLIM_OK) {                                                                                             \
            return tried_;                                                                                                   \
        }                                                                                                                    \
    } while (0)

#define FLIM_TRY_DONE(call)                                                                                                  \
    do {                                                                                                                     \
        status = (call);                                                                                                     \
        if (status != FLIM_OK) {                                                                                             \
            goto done;                                                                                                       \
        }                                                                                                                    \
    } while (0)

#endif
