#include "train/copies.h"

#include "core/alloc.h"
#include "core/try.h"

flim_status flim_copies_of(const flim_study *study, const int64_t *cell, int64_t n, flim_copies *out, flim_error *err)
{
    uint64_t *pattern = NULL; /* (n) */
    flim_status status = FLIM_OK;
    *out = (flim_copies){0};
    if (n == 0 || !study->summary) {
        return FLIM_OK;
    }
    pattern = flim_alloc((size_t)n, sizeof *pattern, err);
    FLIM_TRY_DONE(pattern ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        pattern[i] = study->summary[cell[i]].pattern;
    }
    FLIM_TRY_DONE(flim_cell_set_make(study->hash, cell, n, &out->hash, err));
    status = flim_cell_set_make(pattern, NULL, n, &out->pattern, err);
done:
    flim_free(pattern);
    return status;
}

bool flim_copies_hold(const flim_copies *copies, const flim_study *study, int64_t cell)
{
    return study->summary && (flim_cell_set_holds(&copies->hash, study->hash[cell]) ||
                              flim_cell_set_holds(&copies->pattern, study->summary[cell].pattern));
}

void flim_copies_free(flim_copies *copies)
{
    flim_cell_set_free(&copies->hash);
    flim_cell_set_free(&copies->pattern);
}
