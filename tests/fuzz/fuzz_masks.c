/* Masks: TIFF, PNG and .npy label images, and the cells that are found in them.  The first byte chooses how cells are taken. */
#include "fuzz.h"

#include <string.h>

#include "import/field_cells.h"

enum { MOST_PIXELS = 1 << 20 };

static void find_cells(const flim_label_image *image, uint8_t how)
{
    const flim_cells_rule rule = {.by = (flim_cells_by)(how % 3),
                                  .crop = (flim_crop)(how >> 2 & 1),
                                  .size = 3 + (how >> 3 & 15),
                                  .keep_border = how & 1,
                                  .crop_large = how & 2};
    flim_field_cells cells;
    flim_error err = {0};
    const flim_status status = flim_field_cells_find("mask", image, &rule, &cells, &err);
    int64_t pixels = 0, inside = 0;
    if ((status != FLIM_OK) != (err.text[0] != '\0')) {
        abort();
    }
    for (int32_t k = 0; status == FLIM_OK && k < cells.n; k++) {
        const flim_field_cell *c = &cells.cell[k];
        pixels += c->pixels;
        if (c->y0 < 0 || c->x0 < 0 || c->y1 >= image->y || c->x1 >= image->x || c->y0 > c->y1 || c->x0 > c->x1) {
            abort();
        }
    }
    for (int64_t i = 0; status == FLIM_OK && i < image->y * image->x; i++) {
        inside += image->label[i] != 0;
    }
    if (pixels != inside) {
        abort();
    }
    flim_field_cells_free(&cells);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    char path[64];
    const int fd = flim_fuzz_file(data + 1, size - 1, path);
    flim_label_image image;
    flim_error err = {0};
    const flim_status status = flim_label_image_read(path, &image, &err);
    if ((status != FLIM_OK) != (err.text[0] != '\0')) {
        abort();
    }
    if (status == FLIM_OK && image.y * image.x <= MOST_PIXELS) {
        find_cells(&image, data[0]);
    }
    flim_label_image_free(&image);
    close(fd);
    return 0;
}
