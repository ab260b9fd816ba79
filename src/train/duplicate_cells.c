/* Cells that stand in the data more than once: files that overlap, an export that was appended twice, flipped copies.  The
 * folds know cells by their numbers, so copies come into training and test parts alike. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "train/study.h"

/* What the scan saw of a cell; a copy, or a flipped one, has the same.  Cells that differ in noise never do. */
typedef struct seen {
    int64_t cell;
    const flim_cell_summary *summary;
    const double *decay; /* (bins) */
    int bins;
} seen;

static int compare_seen(const seen *x, const seen *y)
{
    const double a[] = {x->summary->photons, (double)x->summary->zero_voxels, (double)x->summary->mask_pixels,
                        x->summary->max_count};
    const double b[] = {y->summary->photons, (double)y->summary->zero_voxels, (double)y->summary->mask_pixels,
                        y->summary->max_count};
    for (size_t i = 0; i < sizeof a / sizeof a[0]; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return memcmp(x->decay, y->decay, (size_t)x->bins * sizeof *x->decay);
}

static int by_seen(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    const int order = compare_seen(x, y);
    return order ? order : (x->cell > y->cell) - (x->cell < y->cell);
}

/* fold: (n) the one that tests the cell, -1 = held out. */
static void find_folds(const flim_splits *splits, int *fold)
{
    for (int64_t i = 0; i < splits->n_holdout; i++) {
        fold[splits->holdout[i]] = -1;
    }
    for (int f = 0; f < splits->n_folds; f++) {
        for (int64_t i = 0; i < splits->fold[f].n_test; i++) {
            fold[splits->fold[f].test[i]] = f;
        }
    }
}

flim_status flim_study_warn_of_copies(const flim_study *study, const flim_log *log, flim_error *err)
{
    const int64_t n = study->info->n;
    const int bins = study->info->t;
    flim_status status = FLIM_OK;
    int64_t copies = 0, first = -1, second = -1;
    if (!study->summary) {
        return FLIM_OK;
    }
    seen *list = flim_alloc((size_t)n, sizeof *list, err);
    int *fold = flim_alloc((size_t)n, sizeof *fold, err); /* (n) */
    FLIM_TRY_DONE(list && fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    find_folds(&study->splits, fold);
    for (int64_t i = 0; i < n; i++) {
        list[i] = (seen){i, &study->summary[i], study->decay + i * bins, bins};
    }
    qsort(list, (size_t)n, sizeof *list, by_seen);
    for (int64_t from = 0, to; from < n; from = to) {
        int64_t other = -1; /* a copy in another fold's test part */
        for (to = from + 1; to < n && compare_seen(&list[from], &list[to]) == 0; to++) {
            other = other < 0 && fold[list[to].cell] != fold[list[from].cell] ? list[to].cell : other;
        }
        if (other >= 0 && list[from].summary->photons > 0) {
            first = copies ? first : list[from].cell;
            second = copies ? second : other;
            copies += to - from;
        }
    }
    if (copies) {
        flim_log_line(log, FLIM_LOG_WARNING,
                      "%" PRId64 " cells are copies of each other (%" PRId64 " and %" PRId64
                      ", for one: equal decays and masks) and are tested in different folds: what a network is tested on "
                      "stands in its training part, and the scores are too good",
                      copies, first, second);
    }
done:
    flim_free(list);
    flim_free(fold);
    return status;
}
