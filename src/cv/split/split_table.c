/* The canonical table of cells and groups, and small helpers of the splitter. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/try.h"
#include "core/alloc.h"
#include "cv/split/split_internal.h"

const char *flim_split_class(const flim_split_data *data, int c, char buffer[32])
{
    if (data->class_name) {
        return data->class_name[c];
    }
    snprintf(buffer, 32, "%d", c);
    return buffer;
}

const char *flim_split_group(const flim_split_data *data, int64_t g, char buffer[32])
{
    if (data->group_name) {
        return data->group_name[g];
    }
    snprintf(buffer, 32, "%" PRId64, g);
    return buffer;
}

flim_random flim_split_random(uint64_t seed, flim_split_stage stage, int fold)
{
    flim_cell_id id = {.seed = seed, .fold = (uint32_t)fold, .epoch = (uint32_t)stage};
    return flim_random_begin(&id, FLIM_RANDOM_SPLIT);
}

static int compare_groups(const void *a, const void *b, void *context)
{
    const flim_split_data *data = context;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    int order = data->group_name ? strcmp(data->group_name[x], data->group_name[y]) : 0;
    return order ? order : (x > y) - (x < y);
}

static int compare_cells(const void *a, const void *b, void *context)
{
    const flim_split_data *data = context;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    int order = data->name ? strcmp(data->name[x], data->name[y]) : 0;
    if (!order && data->group) {
        order = compare_groups(&data->group[x], &data->group[y], context);
    }
    if (!order && data->label[x] != data->label[y]) {
        order = data->label[x] < data->label[y] ? -1 : 1;
    }
    return order ? order : (x > y) - (x < y);
}

static int compare_rows(const void *a, const void *b, void *context)
{
    const flim_split_table *table = context;
    const size_t classes = (size_t)table->data->classes;
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    const int order =
        memcmp(table->count + (size_t)x * classes, table->count + (size_t)y * classes, classes * sizeof *table->count);
    return order ? order : (x > y) - (x < y);
}

/* row: (groups) scratch. */
static flim_status number_kinds(flim_split_table *table, int64_t *row, flim_error *err)
{
    const size_t classes = (size_t)table->data->classes;
    if (!(table->kind_of = flim_alloc((size_t)table->groups, sizeof *table->kind_of, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t g = 0; g < table->groups; g++) {
        row[g] = g;
    }
    qsort_r(row, (size_t)table->groups, sizeof *row, compare_rows, table);
    for (int64_t i = 0; i < table->groups; i++) {
        const bool same = i > 0 && memcmp(table->count + (size_t)row[i] * classes,
                                          table->count + (size_t)row[i - 1] * classes, classes * sizeof *table->count) == 0;
        table->kinds += !same;
        table->kind_of[row[i]] = table->kinds - 1;
    }
    return FLIM_OK;
}

static flim_status fill_groups(flim_split_table *table, flim_error *err)
{
    const flim_split_data *data = table->data;
    flim_status status = FLIM_OK;
    int64_t *row = flim_alloc((size_t)data->groups, sizeof *row, err);
    table->group_id = flim_alloc((size_t)data->groups, sizeof *table->group_id, err);
    table->group_of = flim_alloc((size_t)table->n, sizeof *table->group_of, err);
    table->count = flim_alloc((size_t)data->groups * (size_t)data->classes, sizeof *table->count, err);
    FLIM_TRY_DONE(row && table->group_id && table->group_of && table->count ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < table->n; i++) {
        row[data->group[table->cell[i]]] = 1; /* has cells */
    }
    for (int64_t g = 0; g < data->groups; g++) {
        if (row[g]) {
            table->group_id[table->groups++] = g;
        }
    }
    qsort_r(table->group_id, (size_t)table->groups, sizeof *table->group_id, compare_groups, (void *)data);
    for (int64_t g = 0; g < table->groups; g++) {
        row[table->group_id[g]] = g;
    }
    for (int64_t i = 0; i < table->n; i++) {
        int64_t cell = table->cell[i];
        table->group_of[i] = row[data->group[cell]];
        table->count[table->group_of[i] * data->classes + data->label[cell]]++;
    }
    for (int64_t g = 0; g < table->groups; g++) {
        for (int c = 0; c < data->classes; c++) {
            table->class_groups[c] += table->count[g * data->classes + c] > 0;
        }
    }
    status = number_kinds(table, row, err);
done:
    flim_free(row);
    return status;
}

flim_status flim_split_table_make(const flim_split_data *data, const bool *held_out, flim_split_table *out, flim_error *err)
{
    *out = (flim_split_table){.data = data};
    flim_status status = FLIM_OK;
    out->cell = flim_alloc((size_t)data->n, sizeof *out->cell, err);
    out->class_cells = flim_alloc((size_t)data->classes, sizeof *out->class_cells, err);
    out->class_groups = flim_alloc((size_t)data->classes, sizeof *out->class_groups, err);
    FLIM_TRY_DONE(out->cell && out->class_cells && out->class_groups ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < data->n; i++) {
        if (!held_out || !held_out[data->group[i]]) {
            out->cell[out->n++] = i;
            out->class_cells[data->label[i]]++;
        }
    }
    qsort_r(out->cell, (size_t)out->n, sizeof *out->cell, compare_cells, (void *)data);
    if (data->group) {
        status = fill_groups(out, err);
    }
done:
    if (status != FLIM_OK) {
        flim_split_table_free(out);
    }
    return status;
}

void flim_split_table_free(flim_split_table *table)
{
    flim_free(table->cell);
    flim_free(table->group_of);
    flim_free(table->group_id);
    flim_free(table->count);
    flim_free(table->kind_of);
    flim_free(table->class_cells);
    flim_free(table->class_groups);
    *table = (flim_split_table){0};
}

flim_status flim_split_list(const bool *marked, int64_t n, int64_t **list, int64_t *count, flim_error *err)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        total += marked[i];
    }
    int64_t *items = flim_alloc((size_t)total, sizeof *items, err);
    if (!items) {
        return FLIM_ERROR_MEMORY;
    }
    total = 0;
    for (int64_t i = 0; i < n; i++) {
        if (marked[i]) {
            items[total++] = i;
        }
    }
    *list = items;
    *count = total;
    return FLIM_OK;
}
