/* Checkpoints.  First byte even: the rest is the file.  Odd: the rest is the payload, and the header with its checksum is put
 * before it, so that mutations reach the fields.  With its second bit set the state has room for averages. */
#include "fuzz.h"

#include <string.h>
#include <sys/stat.h>

#include "core/sha256.h"
#include "train/checkpoint.h"

static void write_file(const char *path, const uint8_t *data, size_t size, int with_header)
{
    FILE *f = fopen(path, "wb");
    if (!f) {
        abort();
    }
    if (with_header) {
        char digest[65];
        uint32_t version = FLIM_CHECKPOINT_VERSION;
        uint64_t length = size;
        if (flim_sha256_of(data, size, digest, NULL) != FLIM_OK) {
            abort();
        }
        fwrite("FLIMCKPT", 1, 8, f);
        fwrite(&version, 4, 1, f);
        fwrite(&length, 8, 1, f);
        fwrite(digest, 1, 64, f);
    }
    fwrite(data, 1, size, f);
    fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[64], path[96];
    static flim_network net; /* only its sizes count */
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/dev/shm/flim_fuzz_checkpoint_%d", (int)getpid());
        snprintf(path, sizeof path, "%s/state.ckpt", folder);
        net.parameters = 3;
        net.statistics = 2;
    }
    flim_fold_state state;
    flim_error err = {0};
    if (size == 0 || flim_fold_state_create(&net, 2, &state, &err) != FLIM_OK) {
        return 0;
    }
    if ((data[0] & 2) && flim_fold_state_add_average(&state, &err) != FLIM_OK) {
        flim_fold_state_free(&state);
        return 0;
    }
    mkdir(folder, 0700);
    write_file(path, data + 1, size - 1, data[0] & 1);
    int which = -1;
    const char *const identity[] = {"this run", "this run, once"};
    flim_status status = flim_checkpoint_read(&state, folder, identity, 2, NULL, &which, &err);
    if ((which >= 0) != (status == FLIM_OK) || which > 1 || (status != FLIM_OK && !err.text[0])) {
        abort();
    }
    if (which >= 0) { /* what training does with it next */
        if (flim_fold_state_check(&state, NULL) != FLIM_OK || state.n_history >= state.history_capacity) {
            abort();
        }
        state.history[state.epoch] = (flim_epoch_row){.epoch = state.epoch + 1};
        if (state.calls * state.batch < 0 || state.totals.nonfinite_call >= state.calls + (state.calls == 0)) {
            abort();
        }
    }
    flim_fold_state_free(&state);
    flim_checkpoint_remove(folder);
    return 0;
}
