/* Shared by the fuzz targets. */
#ifndef FLIM_FUZZ_H
#define FLIM_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* libFuzzer's entry point, which each target defines; driver.c calls it, too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file in memory that holds the bytes, for readers that take a path; close(the result) when done. */
static inline int flim_fuzz_file(const void *bytes, size_t count, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count) {
        abort();
    }
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
