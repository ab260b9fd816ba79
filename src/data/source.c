#include "data/source.h"

#include "data/hdf5/hdf5_source.h"

/* One format so far; the first bytes of a file would tell others apart. */
flim_status flim_source_open(const char *path, const flim_source_options *options, flim_source **out, flim_error *err)
{
    return flim_h5_source_open(path, options, out, err);
}

int flim_source_fork(void)
{
    return flim_h5_fork();
}

bool flim_source_thread_safe(void)
{
    return flim_h5_thread_safe();
}
