#include "cv/metrics/rank.h"

#include <stdlib.h>

static int descending(const void *a, const void *b)
{
    const flim_ranked *x = a, *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return (x->item > y->item) - (x->item < y->item);
}

void flim_rank_sort(int64_t n, flim_ranked *ranked)
{
    qsort(ranked, (size_t)n, sizeof *ranked, descending);
}

void flim_rank_descending(int64_t n, const double *score, flim_ranked *ranked)
{
    for (int64_t i = 0; i < n; i++) {
        ranked[i] = (flim_ranked){.score = score[i], .item = i};
    }
    flim_rank_sort(n, ranked);
}
