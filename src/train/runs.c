/* What train_cv does around a run: several runs (seeds.c), worker processes (workers.c).  The frames here are small: the run is
 * called from within them, and a machine may give little stack. */
#include "core/alloc.h"
#include "core/try.h"
#include "train/seeds.h"
#include "train/workers.h"

static flim_status has_seeds(const flim_settings *settings, bool *out, flim_error *err)
{
    flim_seeds *seeds = flim_alloc(1, sizeof *seeds, err);
    const flim_status status = seeds ? flim_find_seeds(settings, seeds, err) : FLIM_ERROR_MEMORY;
    *out = status == FLIM_OK && seeds->n > 0;
    flim_free(seeds);
    return status;
}

flim_status flim_train_runs(const flim_settings *settings, const flim_train_hooks *hooks, flim_error *err)
{
    bool several;
    FLIM_TRY(has_seeds(settings, &several, err));
    return several ? flim_train_seeds(settings, hooks, err) : flim_train_cv(settings, hooks, NULL, err);
}

flim_status flim_train(const flim_settings *settings, const flim_train_hooks *hooks, char *const *argv, flim_error *err)
{
    return settings->dry_run || (settings->jobs == 1 && settings->devices.n == 0)
               ? flim_train_runs(settings, hooks, err)
               : flim_train_workers(settings, hooks, argv, err);
}
