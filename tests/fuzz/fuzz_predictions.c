/* predictions.csv: read or refused with a text; what was read is written, and that reads back the same. */
#include "fuzz.h"

#include <string.h>

#include "flim/predictions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], out[64];
    int fd = flim_fuzz_file(data, size, path);
    flim_predictions a, b;
    flim_error err = {0};
    flim_status status = flim_predictions_read(path, &a, &err);
    close(fd);
    if (status != FLIM_OK) {
        if (!err.text[0]) {
            abort();
        }
        return 0;
    }
    snprintf(out, sizeof out, "/dev/shm/flim_fuzz_predictions_%d.csv", (int)getpid());
    if (flim_predictions_write(&a, out, &err) != FLIM_OK || flim_predictions_read(out, &b, &err) != FLIM_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    if (a.n != b.n || a.classes != b.classes || a.outputs != b.outputs ||
        memcmp(a.logits, b.logits, (size_t)(a.n * a.outputs) * sizeof *a.logits) != 0) {
        abort();
    }
    for (int64_t i = 0; i < a.n; i++) {
        if (a.index[i] != b.index[i] || a.label[i] != b.label[i] || a.predicted[i] != b.predicted[i] ||
            strcmp(a.name[i], b.name[i]) != 0 || strcmp(a.group[i], b.group[i]) != 0) {
            abort();
        }
    }
    flim_predictions_free(&a);
    flim_predictions_free(&b);
    unlink(out);
    return 0;
}
