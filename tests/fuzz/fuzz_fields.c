/* Instrument files and arrays.  First byte even: the rest is the file.  Odd: the checksum of an .sdt's header is made right
 * first, so that mutations of the header reach what lies behind it. */
#include "fuzz.h"

#include <string.h>

#include "core/alloc.h"
#include "import/field_file.h"
#include "../import/read_plain.h"

enum { SDT_HEADER = 42, MOST_VOXELS = 1 << 22 /* more would only measure the memory */ };

static void make_checksum_right(uint8_t *file)
{
    uint32_t sum = 0;
    for (int i = 0; i < SDT_HEADER - 2; i += 2) {
        sum += (uint32_t)file[i] | (uint32_t)file[i + 1] << 8;
    }
    sum = 0x55aa - sum;
    file[SDT_HEADER - 2] = (uint8_t)sum;
    file[SDT_HEADER - 1] = (uint8_t)(sum >> 8);
}

static void read_images(flim_field_file *file)
{
    for (int i = 0; i < file->n_images && i < 16; i++) {
        const flim_field_image *image = &file->image[i];
        uint32_t *counts = NULL;
        uint64_t photons = 0, sum = 0;
        flim_error err = {0};
        if (image->y * image->x > MOST_VOXELS / image->t) {
            continue;
        }
        const flim_status status = read_plain(file, i, &counts, &photons, &err);
        if ((status != FLIM_OK) != (err.text[0] != '\0') || (status != FLIM_OK) != (counts == NULL)) {
            abort();
        }
        for (int64_t v = 0; counts && v < image->y * image->x * image->t; v++) {
            sum += counts[v];
        }
        if (sum != photons) {
            abort();
        }
        free(counts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    uint8_t *bytes = malloc(size - 1);
    char path[64];
    if (!bytes) {
        return 0;
    }
    memcpy(bytes, data + 1, size - 1);
    if ((data[0] & 1) && size - 1 >= SDT_HEADER) {
        make_checksum_right(bytes);
    }
    if (size - 1 >= 4 && memcmp(bytes, "\211HDF", 4) == 0) { /* libhdf5's own faults are fuzz_dataset's */
        free(bytes);
        return 0;
    }
    const int fd = flim_fuzz_file(bytes, size - 1, path);
    flim_field_file *file;
    flim_error err = {0};
    const flim_status status =
        flim_field_open(path, &(flim_field_options){.axes = (flim_array_axes)(data[0] >> 1 & 1)}, &file, &err);
    if (status == FLIM_OK) {
        read_images(file);
        flim_field_close(file);
    } else if (err.text[0] == '\0') {
        abort();
    }
    close(fd);
    free(bytes);
    return 0;
}
