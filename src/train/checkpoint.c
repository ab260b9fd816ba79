#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/try.h"

/* The file: magic, version, payload length, SHA-256 hex of the payload, payload.  All numbers little endian, as on every
 * machine that this runs on (checked at compile time). */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "checkpoints are written in the machine's byte order");

enum { HEADER_BYTES = 8 + 4 + 8 + 64 };
static const char magic[8] = {'F', 'L', 'I', 'M', 'C', 'K', 'P', 'T'};

/* ---- one list of fields for writing, reading and measuring ---- */

typedef enum direction { MEASURE, PUT, GET } direction;

typedef struct cursor {
    direction direction;
    char *at; /* PUT, GET */
    size_t left, used;
    bool ended; /* GET: the payload is shorter than its fields */
    bool no_memory; /* GET: for a longer history */
} cursor;

static void field(cursor *c, void *value, size_t bytes)
{
    c->used += bytes;
    if (c->direction == MEASURE || c->ended) {
        return;
    }
    if (bytes > c->left) {
        c->ended = true;
        return;
    }
    if (c->direction == PUT) {
        memcpy(c->at, value, bytes);
    } else {
        memcpy(value, c->at, bytes);
    }
    c->at += bytes;
    c->left -= bytes;
}

enum { ROW_FIELDS = 26, DIAGNOSTIC_FIELDS = 5 }; /* of 8 bytes each; the latter with --diagnostics */

static void fields_of_row(cursor *c, flim_epoch_row *row, bool diagnosed)
{
    field(c, &row->epoch, sizeof row->epoch);
    double *const reals[] = {&row->learning_rate,
                             &row->train_loss,
                             &row->train_accuracy,
                             &row->val_loss,
                             &row->val_accuracy,
                             &row->val_balanced_accuracy,
                             &row->val_f1,
                             &row->val_roc_auc,
                             &row->grad_norm,
                             &row->seconds,
                             &row->iterations_per_second,
                             &row->cells_per_second,
                             &row->wait_share,
                             &row->device_share,
                             &row->device_busy,
                             &row->device_memory,
                             &row->device_watts,
                             &row->device_celsius,
                             &row->grad_norm_mean,
                             &row->grad_norm_least,
                             &row->grad_norm_most};
    int64_t *const wholes[] = {&row->cells, &row->updates, &row->skipped, &row->peak_bytes};
    double *const diagnostics[DIAGNOSTIC_FIELDS] = {&row->batch_loss_sd, &row->batch_loss_most, &row->inactive, &row->dead,
                                                    &row->update_size};
    _Static_assert(1 + sizeof reals / sizeof reals[0] + sizeof wholes / sizeof wholes[0] == ROW_FIELDS, "fields of a row");
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        field(c, reals[i], sizeof(double));
    }
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        field(c, wholes[i], sizeof(int64_t));
    }
    for (size_t i = 0; diagnosed && i < DIAGNOSTIC_FIELDS; i++) {
        field(c, diagnostics[i], sizeof(double));
    }
}

static void fields_of_hidden(cursor *c, flim_epoch_row *row)
{
    double *const reals[] = {&row->hidden_loss, &row->hidden_bits, &row->val_hidden_loss, &row->val_hidden_bits};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        field(c, reals[i], sizeof(double));
    }
}

/* Memory for the history that is about to be read, and for the epoch that may be in progress; what a damaged number may
 * cost is bounded by the bytes that follow. */
static void make_history(cursor *c, flim_fold_state *state)
{
    const int64_t fields = ROW_FIELDS + (state->epoch_parameter ? DIAGNOSTIC_FIELDS : 0);
    const int64_t most = (int64_t)(c->left / sizeof(int64_t)) / fields;
    if (c->direction != GET || state->n_history < state->history_capacity || c->ended) {
        return;
    }
    if (state->n_history > most) {
        c->ended = true;
        return;
    }
    flim_epoch_row *longer = flim_realloc(state->history, (size_t)state->n_history + 1, sizeof *longer, NULL);
    if (!longer) {
        c->ended = c->no_memory = true;
        return;
    }
    state->history = longer;
    state->history_capacity = state->n_history + 1;
}

static void fields_of_bool(cursor *c, bool *value)
{
    uint8_t byte = *value ? 1 : 0;
    field(c, &byte, 1);
    c->ended = c->ended || byte > 1;
    *value = byte != 0;
}

/* Passes over bytes for which the state has no room. */
static void skip(cursor *c, size_t bytes)
{
    c->ended = c->ended || bytes > c->left;
    if (!c->ended) {
        c->at += bytes;
        c->left -= bytes;
    }
}

/* Where the run has been told to do without averages, those of its checkpoint are passed over. */
static void fields_of_average(cursor *c, flim_fold_state *state, size_t parameter_bytes, size_t statistic_bytes)
{
    fields_of_bool(c, &state->averaged);
    if (state->averaged && state->average_parameter) {
        field(c, state->average_parameter, parameter_bytes);
        field(c, state->average_statistic, statistic_bytes);
    } else if (state->averaged) {
        skip(c, parameter_bytes + statistic_bytes);
        state->averaged = false;
    }
}

/* Everything after the identity.  `state` is only written to when the direction is GET. */
static void fields_of_state(cursor *c, flim_fold_state *state)
{
    int64_t sizes[2] = {state->parameters, state->statistics};
    field(c, sizes, sizeof sizes);
    if (sizes[0] != state->parameters || sizes[1] != state->statistics) {
        c->ended = true;
    }
    field(c, &state->epoch, sizeof state->epoch);
    field(c, &state->calls, sizeof state->calls);
    field(c, &state->batch, sizeof state->batch);
    field(c, &state->accumulate, sizeof state->accumulate);
    field(c, &state->skipped_before, sizeof state->skipped_before);
    fields_of_bool(c, &state->finished);
    flim_counters *n = &state->counters;
    field(c, &n->adam_step, sizeof n->adam_step);
    field(c, &n->skipped, sizeof n->skipped);
    field(c, &n->skipped_in_row, sizeof n->skipped_in_row);
    field(c, &n->loss_scale, sizeof n->loss_scale);
    field(c, &n->scale_growth, sizeof n->scale_growth);
    flim_totals *t = &state->totals;
    field(c, &t->loss, sizeof t->loss);
    field(c, &t->weight, sizeof t->weight);
    field(c, &t->cells, sizeof t->cells);
    field(c, &t->correct, sizeof t->correct);
    field(c, &t->updates, sizeof t->updates);
    field(c, &t->grad_norm, sizeof t->grad_norm);
    field(c, &t->grad_norm_sum, sizeof t->grad_norm_sum);
    field(c, &t->grad_norm_least, sizeof t->grad_norm_least);
    field(c, &t->grad_norm_most, sizeof t->grad_norm_most);
    fields_of_bool(c, &t->nonfinite);
    field(c, &t->calls, sizeof t->calls);
    field(c, &t->nonfinite_call, sizeof t->nonfinite_call);
    if (state->pretrains) {
        field(c, &t->hidden.voxels, sizeof t->hidden.voxels);
        field(c, &t->hidden.photons, sizeof t->hidden.photons);
        field(c, &t->hidden.loss, sizeof t->hidden.loss);
        field(c, &t->hidden.baseline, sizeof t->hidden.baseline);
    }
    field(c, &state->best_value, sizeof state->best_value);
    field(c, &state->best_epoch, sizeof state->best_epoch);
    field(c, &state->n_history, sizeof state->n_history);
    make_history(c, state);
    if (c->ended || state->n_history < 0 || state->n_history > state->history_capacity) {
        state->n_history = 0;
        c->ended = true;
        return;
    }
    for (int64_t i = 0; i < state->n_history; i++) {
        fields_of_row(c, &state->history[i], state->epoch_parameter != NULL);
        if (state->pretrains) {
            fields_of_hidden(c, &state->history[i]);
        }
    }
    size_t p = (size_t)state->parameters * sizeof(float), s = (size_t)state->statistics * sizeof(float);
    field(c, state->parameter, p);
    field(c, state->moment1, p);
    field(c, state->moment2, p);
    field(c, state->statistic, s);
    field(c, state->best_parameter, p);
    field(c, state->best_statistic, s);
    fields_of_average(c, state, p, s);
    if (state->epoch_parameter) { /* the setting is the run's, so a checkpoint of it has them */
        flim_batch_losses *l = &state->losses;
        field(c, &l->moments.n, sizeof l->moments.n);
        field(c, &l->moments.mean, sizeof l->moments.mean);
        field(c, &l->moments.squares, sizeof l->moments.squares);
        field(c, &l->most, sizeof l->most);
        field(c, state->epoch_parameter, p);
    }
}

static void paths_of(const char *folder, char newest[4096], char previous[4096])
{
    snprintf(newest, 4096, "%s/state.ckpt", folder);
    snprintf(previous, 4096, "%s/state.previous.ckpt", folder);
}

flim_status flim_checkpoint_serialise(const flim_fold_state *state, const char *identity, char **out, size_t *count,
                                      flim_error *err)
{
    flim_fold_state *view = (flim_fold_state *)(uintptr_t)state; /* PUT and MEASURE only read */
    cursor measure = {.direction = MEASURE};
    fields_of_state(&measure, view);
    uint64_t identity_bytes = strlen(identity);
    size_t payload = sizeof identity_bytes + identity_bytes + measure.used;
    char *bytes = flim_alloc(HEADER_BYTES + payload, 1, err);
    if (!bytes) {
        return FLIM_ERROR_MEMORY;
    }
    cursor put = {.direction = PUT, .at = bytes + HEADER_BYTES, .left = payload};
    field(&put, &identity_bytes, sizeof identity_bytes);
    field(&put, (char *)(uintptr_t)identity, identity_bytes);
    fields_of_state(&put, view);
    *out = bytes;
    *count = HEADER_BYTES + payload;
    return FLIM_OK;
}

flim_status flim_checkpoint_store(char *bytes, size_t count, const char *folder, flim_error *err)
{
    char newest[4096], previous[4096], written[4096], digest[65];
    paths_of(folder, newest, previous);
    snprintf(written, sizeof written, "%s/state.new.ckpt", folder);
    uint32_t version = FLIM_CHECKPOINT_VERSION;
    uint64_t length = count - HEADER_BYTES;
    FLIM_TRY(flim_sha256_of(bytes + HEADER_BYTES, count - HEADER_BYTES, digest, err));
    memcpy(bytes, magic, 8);
    memcpy(bytes + 8, &version, 4); /* NOLINT(bugprone-not-null-terminated-result): bytes of a file, no text */
    memcpy(bytes + 12, &length, 8);
    memcpy(bytes + 20, digest, 64);
    FLIM_TRY(flim_file_write(written, bytes, count, err));
    return flim_file_rotate(written, newest, previous, err); /* reading knows all three names */
}

/* ---- reading ---- */

/* What of an identity is compared: up to its first newline. */
static size_t compared(const char *identity, size_t length)
{
    const char *end = memchr(identity, '\n', length);
    return end ? (size_t)(end - identity) : length;
}

/* Its number in the list, -1 if it is not there. */
static int find_identity(const char *there, size_t length, const char *const *identity, int n)
{
    const size_t bytes = compared(there, length);
    for (int i = 0; i < n; i++) {
        if (compared(identity[i], strlen(identity[i])) == bytes && memcmp(there, identity[i], bytes) == 0) {
            return i;
        }
    }
    return -1;
}

/* FLIM_ERROR_DATA with the reason if these are not the bytes of a whole checkpoint of ours. */
static flim_status check_whole(const char *bytes, size_t count, const char *path, flim_error *err)
{
    char digest[65];
    uint32_t version = 0;
    uint64_t length = 0;
    if (count < HEADER_BYTES || memcmp(bytes, magic, 8) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: not a checkpoint of flimcv (%zu bytes)", path, count);
    }
    memcpy(&version, bytes + 8, 4);
    memcpy(&length, bytes + 12, 8);
    if (version != FLIM_CHECKPOINT_VERSION) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: checkpoint format %" PRIu32 ", this program reads %d", path, version,
                         FLIM_CHECKPOINT_VERSION);
    }
    if (length != count - HEADER_BYTES) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: truncated, %zu bytes where %" PRIu64 " were written", path, count,
                         length + HEADER_BYTES);
    }
    FLIM_TRY(flim_sha256_of(bytes + HEADER_BYTES, count - HEADER_BYTES, digest, err));
    return memcmp(digest, bytes + 20, 64) == 0
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "%s: damaged, its checksum does not match", path);
}

/* The payload of a whole file into state; FLIM_ERROR_USAGE if it belongs to something else. */
static flim_status read_payload(flim_fold_state *state, cursor *get, const char *path, const char *const *identity,
                                int n_identities, int *which, flim_error *err)
{
    uint64_t identity_bytes = 0;
    field(get, &identity_bytes, sizeof identity_bytes);
    if (identity_bytes > get->left) {
        get->ended = true;
    } else if ((*which = find_identity(get->at, identity_bytes, identity, n_identities)) < 0) {
        char difference[1024];
        flim_describe_difference(get->at, compared(get->at, identity_bytes), identity[0], difference, sizeof difference);
        const bool only_fold = strncmp(difference, "fold ", 5) == 0 && !strchr(difference, ';');
        return flim_fail(err, FLIM_ERROR_USAGE, "%s belongs to another %s: %s", path, only_fold ? "fold" : "run", difference);
    } else {
        get->at += identity_bytes;
        get->left -= identity_bytes;
        fields_of_state(get, state);
    }
    if (get->no_memory) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "%s: out of host memory for a history of %" PRId64 " epochs", path,
                         state->n_history);
    }
    if (get->ended || get->left != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: damaged, its fields do not fill it", path);
    }
    const flim_status status = flim_fold_state_check(state, err); /* its checksum says nothing about who made it */
    if (status != FLIM_OK) {
        flim_fail_prefix(err, "%s: damaged: ", path);
    }
    return status;
}

static flim_status read_one(flim_fold_state *state, const char *path, const char *const *identity, int n_identities,
                            int *which, flim_error *err)
{
    char *bytes = NULL;
    size_t count = 0;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_file_read(path, (size_t)1 << 34, &bytes, &count, err));
    FLIM_TRY_DONE(check_whole(bytes, count, path, err));
    cursor get = {.direction = GET, .at = bytes + HEADER_BYTES, .left = count - HEADER_BYTES};
    status = read_payload(state, &get, path, identity, n_identities, which, err);
done:
    flim_free(bytes);
    return status;
}

flim_status flim_checkpoint_read(flim_fold_state *state, const char *folder, const char *const *identity, int n_identities,
                                 const flim_log *log, int *which, flim_error *err)
{
    char candidate[3][4096]; /* in order of preference */
    paths_of(folder, candidate[0], candidate[2]);
    snprintf(candidate[1], sizeof candidate[1], "%s/state.new.ckpt", folder);
    *which = -1;
    bool any = false;
    flim_error why = {0}, first = {0};
    for (int i = 0; i < 3; i++) {
        if (!flim_file_exists(candidate[i])) {
            continue;
        }
        flim_status status = read_one(state, candidate[i], identity, n_identities, which, &why);
        if (status == FLIM_OK) {
            if (any) {
                flim_log_line(log, FLIM_LOG_WARNING, "%s; resuming from %s instead", first.text, candidate[i]);
            }
            return FLIM_OK;
        }
        *which = -1;
        if (status != FLIM_ERROR_DATA) {
            return flim_fail(err, status, "%s", why.text);
        }
        if (!any) {
            first = why;
        }
        any = true;
    }
    return any ? flim_fail(err, FLIM_ERROR_DATA, "%s; no earlier checkpoint is left. Remove %s to start this fold again",
                           first.text, folder)
               : FLIM_OK;
}

void flim_checkpoint_remove(const char *folder)
{
    static const char *const names[] = {"state.ckpt", "state.previous.ckpt", "state.new.ckpt"};
    char path[4096];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    flim_sweep_temporary_files(folder, NULL, true); /* of a process that was killed: the fold is ours */
    rmdir(folder);
}
