/* Shared by the fuzz targets. */
#ifndef FLIM_FUZZ_H
#define FLIM_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry point, which each target defines; driver.c calls it, too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
