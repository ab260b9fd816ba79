/* history.csv: one row per epoch.  While a fold trains, rows are appended, so that an epoch costs the same after a thousand others. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/file.h"
#include "core/try.h"
#include "train/run.h"

static void put_real(FILE *stream, double value)
{
    if (isnan(value)) {
        putc(',', stream);
    } else {
        fprintf(stream, ",%.9g", value);
    }
}

int64_t flim_history_epochs_before(const flim_history *history)
{
    int64_t epochs = 0;
    for (const flim_history *h = history->before; h; h = h->before) {
        epochs += h->state->n_history;
    }
    return epochs;
}

/* --diagnostics, which holds for all of a run. */
static bool is_diagnosed(const flim_history *history)
{
    return history->state->epoch_parameter != NULL;
}

/* What the columns between the learning rate and the cells are. */
static const char *result_names(const flim_history *history)
{
    return history->state->pretrains
               ? "train_loss,pairs_found,hidden_loss,bits_per_photon,val_hidden_loss,val_bits_per_photon,"
                 "grad_norm"
               : "train_loss,train_accuracy,val_loss,val_accuracy,val_balanced_accuracy,val_f1,"
                 "val_roc_auc,grad_norm";
}

static void put_results(FILE *stream, const flim_history *history, const flim_epoch_row *r)
{
    const double trained[] = {r->learning_rate,         r->train_loss, r->train_accuracy, r->val_loss, r->val_accuracy,
                              r->val_balanced_accuracy, r->val_f1,     r->val_roc_auc,    r->grad_norm};
    const double pretrained[] = {r->learning_rate, r->train_loss,      r->train_accuracy,  r->hidden_loss,
                                 r->hidden_bits,   r->val_hidden_loss, r->val_hidden_bits, r->grad_norm};
    const bool pretrains = history->state->pretrains;
    const size_t n = pretrains ? sizeof pretrained / sizeof pretrained[0] : sizeof trained / sizeof trained[0];
    for (size_t j = 0; j < n; j++) {
        put_real(stream, pretrains ? pretrained[j] : trained[j]);
    }
}

static void put_row(FILE *stream, const flim_history *history, const flim_epoch_row *r)
{
    fprintf(stream, "%" PRId64, flim_history_epochs_before(history) + r->epoch);
    put_results(stream, history, r);
    fprintf(stream, ",%" PRId64 ",%" PRId64 ",%" PRId64, r->cells, r->updates, r->skipped);
    put_real(stream, r->grad_norm_mean);
    put_real(stream, r->grad_norm_least);
    put_real(stream, r->grad_norm_most);
    const double times[] = {r->seconds, r->iterations_per_second, r->cells_per_second, r->wait_share, r->device_share};
    for (size_t j = 0; j < sizeof times / sizeof times[0]; j++) {
        put_real(stream, times[j]);
    }
    fprintf(stream, ",%" PRId64, r->peak_bytes);
    const double device[] = {r->device_busy, r->device_memory, r->device_watts, r->device_celsius};
    for (size_t j = 0; j < sizeof device / sizeof device[0]; j++) {
        put_real(stream, device[j]);
    }
    const double diagnostics[] = {r->batch_loss_sd, r->batch_loss_most, r->inactive, r->dead, r->update_size};
    for (size_t j = 0; is_diagnosed(history) && j < sizeof diagnostics / sizeof diagnostics[0]; j++) {
        put_real(stream, diagnostics[j]);
    }
    fprintf(stream, "%s%s\n", history->stage ? "," : "", history->stage ? history->stage : "");
}

static void put_rows(FILE *stream, const flim_history *history)
{
    if (history->before) {
        put_rows(stream, history->before);
    }
    for (int64_t i = 0; i < history->state->n_history; i++) {
        put_row(stream, history, &history->state->history[i]);
    }
}

flim_status flim_write_history(const flim_history *history, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_file_writer writer;
    snprintf(path, sizeof path, "%.4000s/history.csv", history->folder);
    FLIM_TRY(flim_file_begin(&writer, path, err));
    fprintf(writer.stream, "epoch,lr,%s,", result_names(history));
    fputs("cells,updates,skipped,grad_norm_mean,grad_norm_min,grad_norm_max,seconds,it_per_s,cells_per_s,wait_share,device_"
          "share,"
          "peak_bytes,gpu_busy,gpu_memory_bytes,gpu_watts,"
          "gpu_celsius",
          writer.stream);
    fputs(is_diagnosed(history) ? ",batch_loss_sd,batch_loss_max,inactive_share,dead_channel_share,update_size" : "",
          writer.stream);
    fputs(history->stage ? ",stage\n" : "\n", writer.stream);
    put_rows(writer.stream, history);
    return flim_file_commit(&writer, err);
}

flim_status flim_append_history(const flim_history *history, flim_error *err)
{
    enum { ROW_TEXT = 2048 };
    char path[FLIM_PATH_MAX], text[ROW_TEXT] = "";
    bool was_lost = false;
    snprintf(path, sizeof path, "%.4000s/history.csv", history->folder);
    FILE *stream = fmemopen(text, sizeof text, "w");
    if (!stream) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "%s: no memory for a row", path);
    }
    put_row(stream, history, &history->state->history[history->state->n_history - 1]);
    fclose(stream);
    FLIM_TRY(flim_file_append_own(path, text, strlen(text), &was_lost, err));
    return was_lost ? flim_write_history(history, err) : FLIM_OK;
}
