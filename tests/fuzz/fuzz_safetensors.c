/* Weight files.  First byte even: the rest is the file.  Odd: the rest is a header's text, to which the length before it and
 * zeros after it are added, so that mutations of the header alone reach the reading of tensors. */
#include "fuzz.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "flim/weights.h"

static void write_all(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count) {
        abort();
    }
}

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
    int fd = memfd_create("weights", MFD_CLOEXEC);
    if (fd < 0) {
        abort();
    }
    const bool header_only = data[0] & 1;
    data++;
    size--;
    if (header_only) {
        uint64_t length = size;
        write_all(fd, &length, sizeof length);
    }
    write_all(fd, data, size);
    if (header_only && ftruncate(fd, (off_t)(8 + size) + 4 * (off_t)(net.parameters + net.statistics)) != 0) {
        abort();
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    flim_weights_info info;
    flim_error err = {0};
    flim_status probed = flim_weights_probe(path, &info, &err);
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
