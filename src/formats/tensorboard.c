#include "formats/tensorboard.h"

#include <math.h>

#include "core/alloc.h"
#include "core/crc32c.h"
#include "core/try.h"
#include "formats/tensorboard.pb-c.h"

enum { ELEMENT_FLOAT = 1 };

static void put_little_endian(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

/* One record. */
static flim_status put(FILE *stream, const FlimTb__Event *event, flim_error *err)
{
    enum { BEFORE = 12, AFTER = 4 };
    const size_t bytes = flim_tb__event__get_packed_size(event);
    uint8_t *record = flim_alloc(BEFORE + bytes + AFTER, 1, err);
    if (!record) {
        return FLIM_ERROR_MEMORY;
    }
    put_little_endian(record, bytes, 8);
    put_little_endian(record + 8, flim_masked_crc32c(record, 8), 4);
    flim_tb__event__pack(event, record + BEFORE);
    put_little_endian(record + BEFORE + bytes, flim_masked_crc32c(record + BEFORE, bytes), 4);
    fwrite(record, 1, BEFORE + bytes + AFTER, stream);
    flim_free(record);
    return FLIM_OK;
}

static flim_status put_values(FILE *stream, flim_event_at at, size_t n, FlimTb__Value **value, flim_error *err)
{
    FlimTb__Summary summary = FLIM_TB__SUMMARY__INIT;
    FlimTb__Event event = FLIM_TB__EVENT__INIT;
    summary.n_value = n;
    summary.value = value;
    event.seconds = at.seconds;
    event.step = at.step;
    event.of_case = FLIM_TB__EVENT__OF_SUMMARY;
    event.summary = &summary;
    return put(stream, &event, err);
}

/* protobuf-c takes texts that it only reads as char *. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

flim_status flim_event_head(FILE *stream, double seconds, flim_error *err)
{
    FlimTb__Event event = FLIM_TB__EVENT__INIT;
    event.seconds = seconds;
    event.of_case = FLIM_TB__EVENT__OF_VERSION;
    event.version = text("brain.Event:2");
    return put(stream, &event, err);
}

flim_status flim_event_scalars(FILE *stream, flim_event_at at, int n, const flim_event_scalar *scalar, flim_error *err)
{
    FlimTb__Value value[FLIM_EVENT_MOST_SCALARS], *list[FLIM_EVENT_MOST_SCALARS];
    size_t used = 0;
    for (int i = 0; i < n && used < FLIM_EVENT_MOST_SCALARS; i++) {
        if (isfinite(scalar[i].value)) {
            list[used] = &value[used];
            flim_tb__value__init(&value[used]);
            value[used].tag = text(scalar[i].tag);
            value[used].of_case = FLIM_TB__VALUE__OF_SCALAR;
            value[used++].scalar = (float)scalar[i].value;
        }
    }
    return used > 0 ? put_values(stream, at, used, list, err) : FLIM_OK;
}

flim_status flim_event_pr_curve(FILE *stream, flim_event_at at, const char *tag, int n, const float *rows, flim_error *err)
{
    FlimTb__Curve curve = FLIM_TB__CURVE__INIT;
    FlimTb__Plugin plugin = FLIM_TB__PLUGIN__INIT;
    FlimTb__About about = FLIM_TB__ABOUT__INIT;
    FlimTb__Dim dims[2] = {FLIM_TB__DIM__INIT, FLIM_TB__DIM__INIT}, *dim[2] = {&dims[0], &dims[1]};
    FlimTb__Shape shape = FLIM_TB__SHAPE__INIT;
    FlimTb__Tensor tensor = FLIM_TB__TENSOR__INIT;
    FlimTb__Value value = FLIM_TB__VALUE__INIT, *list[1] = {&value};
    uint8_t content[16];
    curve.thresholds = (uint32_t)n;
    plugin.name = text("pr_curves");
    plugin.content.data = content;
    plugin.content.len = flim_tb__curve__pack(&curve, content);
    about.plugin = &plugin;
    dims[0].size = FLIM_EVENT_CURVE_ROWS;
    dims[1].size = n;
    shape.n_dim = 2;
    shape.dim = dim;
    tensor.element = ELEMENT_FLOAT;
    tensor.shape = &shape;
    tensor.content.len = (size_t)FLIM_EVENT_CURVE_ROWS * (size_t)n * sizeof *rows;
    tensor.content.data = (uint8_t *)(uintptr_t)rows; /* only read */
    value.tag = text(tag);
    value.about = &about;
    value.of_case = FLIM_TB__VALUE__OF_TENSOR;
    value.tensor = &tensor;
    return put_values(stream, at, 1, list, err);
}

flim_status flim_event_image(FILE *stream, flim_event_at at, const char *tag, int height, int width, const void *png,
                             size_t bytes, flim_error *err)
{
    FlimTb__Image image = FLIM_TB__IMAGE__INIT;
    FlimTb__Value value = FLIM_TB__VALUE__INIT, *list[1] = {&value};
    image.height = height;
    image.width = width;
    image.channels = 3;
    image.encoded.len = bytes;
    image.encoded.data = (uint8_t *)(uintptr_t)png; /* only read */
    value.tag = text(tag);
    value.of_case = FLIM_TB__VALUE__OF_IMAGE;
    value.image = &image;
    return put_values(stream, at, 1, list, err);
}
