#include "data/hdf5/hdf5_source.h"

#include "core/try.h"
#include "data/hdf5/hdf5_cells.h"
#include "data/hdf5/hdf5_internal.h"

static void close_source(flim_source *source)
{
    flim_h5 *h5 = flim_h5_of(source);
    flim_h5_cells_close(h5->cells);
    flim_h5_close(h5);
}

static int64_t limit(const flim_source *source)
{
    return flim_h5_limit((const flim_h5 *)source);
}

static flim_status read_cell(flim_source *source, int64_t cell, flim_scratch *scratch, void *values, flim_error *err)
{
    return flim_h5_read_cell(flim_h5_of(source)->cells, cell, scratch, values, err);
}

static const flim_source_ops ops = {.close = close_source,
                                    .limit = limit,
                                    .read_cell = read_cell,
                                    .has = flim_h5_has,
                                    .column_kind = flim_h5_column_kind,
                                    .read_integers = flim_h5_read_integers,
                                    .read_strings = flim_h5_read_strings,
                                    .read_texts = flim_h5_read_texts,
                                    .read_mask = flim_h5_read_mask,
                                    .column_names = flim_h5_column_names,
                                    .attribute_strings = flim_h5_attribute_strings,
                                    .attribute_number = flim_h5_attribute_number,
                                    .similar = flim_h5_similar,
                                    .others = flim_h5_others};

static flim_status open_source(const char *path, const flim_source_options *options, flim_source **out, flim_error *err)
{
    flim_h5 *h5 = NULL;
    *out = NULL;
    FLIM_TRY(flim_h5_open(path, options, &h5, err));
    h5->source.ops = &ops;
    const flim_status status = flim_h5_cells_open(h5, options, &h5->cells, err);
    if (status == FLIM_OK) {
        *out = &h5->source;
    } else {
        flim_h5_close(h5);
    }
    return status;
}

const flim_format flim_format_hdf5 = {.open = open_source, .fork = flim_h5_fork, .thread_safe = flim_h5_thread_safe};
