/* What settings ask of a split. */
#include <inttypes.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/split/split_internal.h"
#include "flim/settings.h"

flim_split_request flim_split_request_of(const flim_settings *s, const flim_log *log)
{
    return (flim_split_request){.mode = s->cv,
                                .folds = (int)s->folds,
                                .val_fraction = s->val_fraction,
                                .seed = s->seed,
                                .holdout_group = (const char *const *)s->holdout_group.item,
                                .n_holdout = s->holdout_group.n,
                                .train_group = (const char *const *)s->train_groups.item,
                                .n_train_groups = s->train_groups.n,
                                .val_group = (const char *const *)s->val_groups.item,
                                .n_val_groups = s->val_groups.n,
                                .test_group = (const char *const *)s->test_groups.item,
                                .n_test_groups = s->test_groups.n,
                                .log = log};
}

flim_status flim_split_find_unused(const flim_split_data *data, const flim_settings *s, const flim_log *log, bool **unused,
                                   flim_error *err)
{
    int64_t listed = 0, left = 0;
    *unused = NULL;
    if (!s->exclude[0] && s->fraction == 1) {
        return FLIM_OK;
    }
    *unused = flim_alloc((size_t)data->n, sizeof **unused, err);
    FLIM_TRY(*unused ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(s->exclude[0] ? flim_split_read_excluded(data, s->exclude, *unused, &listed, err) : FLIM_OK);
    FLIM_TRY(s->fraction < 1 ? flim_split_draw_fraction(data, s->fraction, s->seed, *unused, err) : FLIM_OK);
    for (int64_t i = 0; i < data->n; i++) {
        left += !(*unused)[i];
    }
    flim_log_line(log, FLIM_LOG_INFO,
                  "%" PRId64 " of %" PRId64 " cells are used: %" PRId64 " left out by --exclude, %" PRId64 " by --fraction",
                  left, data->n, listed, data->n - left - listed);
    return FLIM_OK;
}
