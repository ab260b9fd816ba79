/* What is written of each epoch: the rows of one table.  While a training runs, records are appended; each is written as a whole
 * when a process begins with the training, so that what a kill or another program has left of it does not last. */
#include "core/file.h"
#include "core/try.h"
#include "results/fold_result.h"
#include "train/fold.h"

typedef struct record {
    bool (*is_wanted)(const flim_settings *settings);
    flim_status (*write)(const flim_fold_work *f, flim_error *err); /* all epochs */
    flim_status (*append)(const flim_fold_work *f, flim_error *err); /* the last one */
    bool ends_whole; /* written as a whole at the end, too */
} record;

static bool always(const flim_settings *settings)
{
    (void)settings;
    return true;
}

static flim_status write_history(const flim_fold_work *f, flim_error *err)
{
    return flim_write_history(&f->history, err);
}

static flim_status append_history(const flim_fold_work *f, flim_error *err)
{
    return flim_append_history(&f->history, err);
}

#ifdef FLIM_HAVE_PROTOBUF
static bool if_tensorboard(const flim_settings *settings)
{
    return settings->tensorboard;
}

static flim_status write_events(const flim_fold_work *f, flim_error *err)
{
    return flim_write_events(&f->history, err);
}

static flim_status append_events(const flim_fold_work *f, flim_error *err)
{
    return flim_append_events(&f->history, err);
}
#endif

static const record records[] = {
    {always, write_history, append_history, true},
#ifdef FLIM_HAVE_PROTOBUF
    {if_tensorboard, write_events, append_events, false}, /* a reader may follow the file */
#endif
};

flim_status flim_fold_record_epoch(flim_fold_work *f, flim_error *err)
{
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        const record *r = &records[i];
        if (r->is_wanted(f->run->settings)) {
            FLIM_TRY((f->records_begun ? r->append : r->write)(f, err));
        }
    }
    f->records_begun = true;
    return FLIM_OK;
}

flim_status flim_fold_record_end(flim_fold_work *f, flim_error *err)
{
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        const record *r = &records[i];
        if (r->is_wanted(f->run->settings) && (r->ends_whole || !f->records_begun)) {
            FLIM_TRY(r->write(f, err));
        }
    }
    f->records_begun = true;
    return FLIM_OK;
}

flim_status flim_fold_record_test(const flim_fold_work *f, const flim_fold_result *result, flim_error *err)
{
#ifdef FLIM_HAVE_PROTOBUF
    FLIM_TRY(f->run->settings->tensorboard ? flim_append_test_events(f, result, err) : FLIM_OK);
#endif
    (void)f, (void)result, (void)err;
    return FLIM_OK;
}

flim_status flim_check_records(const flim_settings *settings, flim_error *err)
{
#ifndef FLIM_HAVE_PROTOBUF
    if (settings->tensorboard) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--tensorboard: this build writes no event files: install protobuf-c (Debian and Ubuntu: apt-get "
                         "install libprotobuf-c-dev protobuf-c-compiler), then run cmake and build again");
    }
#endif
    (void)settings, (void)err;
    return FLIM_OK;
}
