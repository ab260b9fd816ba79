/* Weight files.  First byte even: the rest is the file.  Odd: the rest is a header's text, to which the length before it and
 * zeros after it are added, so that mutations of the header alone reach the reading of tensors. */
#include "fuzz.h"

#include <string.h>

#include "core/alloc.h"
#include "flim/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static flim_network net;
    static float *parameters, *statistics;
    if (!parameters) {
        if (flim_network_build(&net, 4, 2, 16, 5, 7, NULL) != FLIM_OK) {
            abort();
        }
        parameters = malloc((size_t)net.parameters * sizeof *parameters);
        statistics = malloc((size_t)net.statistics * sizeof *statistics);
    }
    if (size == 0 || !parameters || !statistics) {
        return 0;
    }
    char path[64];
    int fd;
    if (data[0] & 1) {
        uint64_t length = size - 1;
        uint8_t *file = malloc(sizeof length + size);
        if (!file) {
            return 0;
        }
        memcpy(file, &length, sizeof length);
        memcpy(file + sizeof length, data + 1, size - 1);
        fd = flim_fuzz_file(file, sizeof length + size - 1, path);
        free(file);
        if (ftruncate(fd, (off_t)(8 + size - 1) + 4 * (off_t)(net.parameters + net.statistics)) != 0) {
            abort();
        }
    } else {
        fd = flim_fuzz_file(data + 1, size - 1, path);
    }
    flim_weights_info info;
    flim_error err = {0};
    flim_status probed = flim_weights_probe(path, false, &info, &err);
    flim_provenance about;
    flim_error why = {0};
    flim_status described = flim_provenance_read(path, &about, &why);
    if ((described != FLIM_OK && why.text[0] == '\0') || (probed != FLIM_OK && described == FLIM_OK)) {
        abort();
    }
    for (int64_t i = 0; described == FLIM_OK && i < about.train.n; i++) { /* what is read is a set, and goes back */
        if (!flim_provenance_has_seen(&about, about.train.hash[i])) {
            abort();
        }
    }
    if (described == FLIM_OK && about.is_known) {
        flim_provenance again;
        char *text = flim_provenance_text(&about, &why);
        if (!text || flim_provenance_parse(text, "again", &again, &why) != FLIM_OK || again.train.n != about.train.n) {
            abort();
        }
        flim_provenance_free(&again);
        flim_free(text);
    }
    flim_provenance_free(&about);
    flim_status status = flim_weights_read(path, &net, parameters, statistics, &err);
    if (probed != FLIM_OK && status == FLIM_OK) {
        abort();
    }
    if (status != FLIM_OK && err.text[0] == '\0') {
        abort();
    }
    close(fd);
    return 0;
}
