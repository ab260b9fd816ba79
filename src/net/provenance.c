#include "flim/provenance.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "flim/dataset.h"

const char *flim_mask_origin_name(flim_mask_origin origin)
{
    static const char *const names[] = {"unknown", "file", "counts"};
    return names[origin];
}

void flim_provenance_free(flim_provenance *p)
{
    flim_free_list(p->class_name, p->classes);
    flim_free_list(p->donor, p->donors);
    flim_free_list(p->file, p->files);
    flim_free(p->recipe);
    flim_cell_set_free(&p->train);
    flim_cell_set_free(&p->val);
    flim_cell_set_free(&p->inherited);
    *p = (flim_provenance){0};
}

flim_status flim_provenance_copy_names(char ***out, int *count, int n, const char *const *name, flim_error *err)
{
    *count = 0;
    *out = flim_alloc((size_t)n, sizeof **out, err);
    if (!*out) {
        return FLIM_ERROR_MEMORY;
    }
    for (; *count < n; ++*count) {
        if (!((*out)[*count] = flim_strdup(name[*count], err))) {
            return FLIM_ERROR_MEMORY;
        }
    }
    return FLIM_OK;
}

flim_status flim_provenance_set_classes(flim_provenance *p, int classes, const char *const *name, flim_error *err)
{
    return flim_provenance_copy_names(&p->class_name, &p->classes, classes, name, err);
}

bool flim_provenance_has_seen(const flim_provenance *p, uint64_t hash)
{
    return flim_cell_set_holds(&p->train, hash) || flim_cell_set_holds(&p->val, hash) ||
           flim_cell_set_holds(&p->inherited, hash);
}

/* ---- does it fit ---- */

flim_status flim_provenance_check_place(const flim_provenance *p, const char *path, int fold, const char *splits_sha256,
                                        flim_error *err)
{
    if (!p->is_known) {
        return FLIM_OK;
    }
    if (p->splits_sha256[0] && splits_sha256[0] && strcmp(p->splits_sha256, splits_sha256) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s belongs to another run: its splits.json has SHA-256 %.16s..., this run's has %.16s... (its fold "
                         "%d of %d, seed %" PRIu64 "). Put the run's own file back, or train this fold again",
                         path, p->splits_sha256, splits_sha256, p->fold, p->folds, p->seed);
    }
    if (p->fold < 0) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s has the weights of no fold (a final model has seen all cells), but was expected to be fold %d: "
                         "they were trained on its test cells. Put the fold's own file back, or train this fold again",
                         path, fold);
    }
    if (p->fold != fold) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s has the weights of fold %d, but was expected to be fold %d: they were trained on its test "
                         "cells. Put the fold's own file back, or train this fold again",
                         path, p->fold, fold);
    }
    return FLIM_OK;
}

flim_status flim_provenance_check_bin_width(const flim_provenance *p, const char *path, const flim_dataset_info *info,
                                            flim_error *err)
{
    const int bins = p->t > 0 ? p->t : info->t; /* an encoder's may be others than the data's */
    const double width = p->time_range_ns / bins, of_data = info->time_range_ns / info->t;
    if (flim_same_time_range(width, of_data)) {
        return FLIM_OK;
    }
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: time_range_ns is %.9g (%d bins of %.4g ns), and %s was trained on %.9g (%d bins of %.4g ns): the "
                     "same decay would look like another lifetime. Use data with that bin width; if the attribute is wrong, "
                     "correct it in the file",
                     info->path[0], info->time_range_ns, info->t, of_data, path, p->time_range_ns, bins, width);
}

void flim_provenance_warn_of_bin_width(const flim_provenance *p, const char *path, const flim_dataset_info *info,
                                       const flim_log *log)
{
    if (p->time_range_ns > 0 && info->time_range_ns <= 0) {
        flim_log_line(
            log, FLIM_LOG_WARNING,
            "%s has no time_range_ns, and %s was trained on %.9g ns (%d bins): whether the bins are as wide cannot be "
            "checked",
            info->path[0], path, p->time_range_ns, p->t);
    } else if (p->is_known && p->time_range_ns <= 0 && info->time_range_ns > 0) {
        flim_log_line(log, FLIM_LOG_WARNING,
                      "%s was trained on data without time_range_ns, and %s has %.9g ns (%d bins): whether the bins are as "
                      "wide cannot be checked",
                      path, info->path[0], info->time_range_ns, info->t);
    }
}

flim_status flim_provenance_check_mask(const flim_provenance *p, const char *path, const flim_dataset_info *info,
                                       flim_error *err)
{
    if (p->mask == FLIM_MASK_ORIGIN_UNKNOWN || p->mask == flim_mask_origin_of(info->has_mask)) {
        return FLIM_OK;
    }
    return p->mask == FLIM_MASK_ORIGIN_FILE
               ? flim_fail(err, FLIM_ERROR_DATA,
                           "%s has no /mask, and %s was trained with masks from its file%s: add the dataset /mask (%" PRId64
                           ",%d,%d), 1 inside each cell",
                           info->path[0], path, p->mask_counts ? ", counts outside them zeroed" : "", info->n, info->h,
                           info->w)
               : flim_fail(err, FLIM_ERROR_DATA,
                           "%s has a /mask, and %s was trained without one, on pixels with at least one photon: leave /mask "
                           "out of the file",
                           info->path[0], path);
}

static flim_status check_classes_alike(const flim_provenance *a, const char *path_a, const flim_provenance *b,
                                       const char *path_b, flim_error *err)
{
    if (a->classes == 0 || b->classes == 0) {
        return FLIM_OK;
    }
    if (a->classes != b->classes) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s has %d classes, %s has %d: they cannot be averaged", path_a, a->classes,
                         path_b, b->classes);
    }
    for (int k = 0; k < a->classes; k++) {
        if (strcmp(a->class_name[k], b->class_name[k]) != 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "class %d is '%s' in %s and '%s' in %s: they cannot be averaged", k,
                             a->class_name[k], path_a, b->class_name[k], path_b);
        }
    }
    return FLIM_OK;
}

flim_status flim_provenance_check_alike(const flim_provenance *a, const char *path_a, const flim_provenance *b,
                                        const char *path_b, flim_error *err)
{
    FLIM_TRY(check_classes_alike(a, path_a, b, path_b, err));
    if (a->t && b->t && (a->t != b->t || a->h != b->h || a->w != b->w)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s was trained on cells of %d x %d x %d, %s on %d x %d x %d", path_a, a->t,
                         a->h, a->w, path_b, b->t, b->h, b->w);
    }
    if (!flim_same_time_range(a->time_range_ns, b->time_range_ns)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s was trained at a time range of %.9g ns, %s at %.9g ns", path_a,
                         a->time_range_ns, path_b, b->time_range_ns);
    }
    if (a->preprocessing[0] && b->preprocessing[0] && strcmp(a->preprocessing, b->preprocessing) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s was trained on '%s', %s on '%s': they need different inputs", path_a,
                         a->preprocessing, path_b, b->preprocessing);
    }
    if (a->mask && b->mask && a->mask != b->mask) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s was trained with masks from the %s, %s with masks from the %s", path_a,
                         flim_mask_origin_name(a->mask), path_b, flim_mask_origin_name(b->mask));
    }
    return FLIM_OK;
}
