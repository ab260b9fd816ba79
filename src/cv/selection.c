#include "cv/selection.h"

#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"
#include "core/try.h"
#include "flim/split.h"

typedef enum term_kind { TERM_GROUP, TERM_CLASS, TERM_NAME, N_TERM_KINDS } term_kind;

/* The number of `text` among the names (n); FLIM_ERROR_USAGE, with the nearest one, if it is none of them. */
static flim_status find_name(const char *term, const char *text, const char *const *name, int64_t n, int64_t *found,
                             flim_error *err)
{
    for (*found = 0; *found < n; ++*found) {
        if (strcmp(name[*found], text) == 0) {
            return FLIM_OK;
        }
    }
    const char *near = flim_nearest(text, name, n < 10000 ? (int)n : 10000);
    return flim_fail(err, FLIM_ERROR_USAGE, "'%s': no cell has that%s%s%s", term, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
}

static flim_status mark_group(const flim_dataset_info *info, const char *term, const char *text, bool *mark, flim_error *err)
{
    int64_t group;
    FLIM_TRY(find_name(term, text, info->group_name, info->group ? info->groups : 0, &group, err));
    for (int64_t i = 0; i < info->n; i++) {
        mark[i] = mark[i] || info->group[i] == group;
    }
    return FLIM_OK;
}

static flim_status mark_class(const flim_dataset_info *info, const char *term, const char *text, bool *mark, flim_error *err)
{
    int64_t class;
    FLIM_TRY(find_name(term, text, info->class_name, info->label ? info->classes : 0, &class, err));
    for (int64_t i = 0; i < info->n; i++) {
        mark[i] = mark[i] || info->label[i] == class;
    }
    return FLIM_OK;
}

static flim_status mark_name(const flim_dataset_info *info, const char *term, const char *text, bool *mark, flim_error *err)
{
    int64_t first;
    FLIM_TRY(find_name(term, text, info->name, info->name ? info->n : 0, &first, err));
    for (int64_t i = first; i < info->n; i++) { /* several cells may have it */
        mark[i] = mark[i] || strcmp(info->name[i], text) == 0;
    }
    return FLIM_OK;
}

/* Marks the cells that a term fits, in the list of its kind: mark (N_TERM_KINDS, n). */
static flim_status apply_term(const flim_dataset_info *info, const char *term, bool *mark, bool used[N_TERM_KINDS],
                              flim_error *err)
{
    static const struct {
        const char *begins;
        term_kind kind;
        flim_status (*mark)(const flim_dataset_info *info, const char *term, const char *text, bool *mark, flim_error *err);
    } kinds[] = {{"group=", TERM_GROUP, mark_group}, {"class=", TERM_CLASS, mark_class}, {"name=", TERM_NAME, mark_name}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const size_t length = strlen(kinds[k].begins);
        if (strncmp(term, kinds[k].begins, length) == 0) {
            used[kinds[k].kind] = true;
            return kinds[k].mark(info, term, term + length, mark + (int64_t)kinds[k].kind * info->n, err);
        }
    }
    if (strncmp(term, "file=", 5) == 0) {
        const flim_split_data data = flim_split_data_of(info);
        int64_t count;
        used[TERM_NAME] = true;
        return flim_split_read_excluded(&data, term + 5, mark + (int64_t)TERM_NAME * info->n, &count, err);
    }
    return flim_fail(err, FLIM_ERROR_USAGE, "'%s': expected group=NAME, class=NAME, name=NAME or file=PATH", term);
}

static flim_status apply_terms(const flim_dataset_info *info, const char *const *term, int n, bool exclude, bool *left_out,
                               flim_error *err)
{
    bool used[N_TERM_KINDS] = {false};
    flim_status status = FLIM_OK;
    bool *mark = flim_alloc((size_t)info->n * N_TERM_KINDS, sizeof *mark, err); /* (N_TERM_KINDS, n) */
    FLIM_TRY_DONE(mark ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int i = 0; i < n; i++) {
        FLIM_TRY_DONE(apply_term(info, term[i], mark, used, err));
    }
    for (int64_t i = 0; i < info->n; i++) {
        for (int k = 0; k < N_TERM_KINDS; k++) {
            const bool fits = mark[k * info->n + i];
            left_out[i] = left_out[i] || (used[k] && fits == exclude);
        }
    }
done:
    flim_free(mark);
    return status;
}

/* Cells without labels are of one class. */
static flim_status draw(const flim_selection *s, const flim_dataset_info *info, bool *left_out, flim_error *err)
{
    flim_split_data data = flim_split_data_of(info);
    int32_t *label = data.label ? NULL : flim_alloc((size_t)data.n, sizeof *label, err); /* (n) zeros */
    if (!data.label && !label) {
        return FLIM_ERROR_MEMORY;
    }
    if (label) {
        data.label = label;
        data.classes = 1;
        data.class_name = NULL;
    }
    const flim_status status = flim_split_draw_fraction(&data, s->fraction, s->seed, left_out, err);
    flim_free(label);
    return status;
}

flim_status flim_selection_apply(const flim_selection *s, const flim_dataset_info *info, bool *left_out, flim_error *err)
{
    int64_t left = 0;
    FLIM_TRY(apply_terms(info, s->select, s->n_select, false, left_out, err));
    FLIM_TRY(apply_terms(info, s->exclude, s->n_exclude, true, left_out, err));
    FLIM_TRY(s->fraction < 1 ? draw(s, info, left_out, err) : FLIM_OK);
    for (int64_t i = 0; i < info->n; i++) {
        left += !left_out[i];
    }
    return left > 0 ? FLIM_OK
                    : flim_fail(err, FLIM_ERROR_USAGE,
                                "no cell is left: a cell must fit one selected term of each kind, and none that is excluded");
}
