/* Writing of weight files: of a whole network, or of what a classifier can take of a pretrained one. */
#include "flim/weights.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "formats/safetensors.h"

static void set_size(flim_json *metadata, const char *key, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    flim_json_set_string(metadata, key, text);
}

/* __metadata__; its own keys are those that other programs read, the provenance is this program's. */
static flim_status describe(const flim_network *net, const flim_provenance *about, flim_json **out, flim_error *err)
{
    flim_json *metadata = flim_json_object();
    flim_status status = FLIM_OK;
    flim_json_set_string(metadata, "flimcv_format", FLIM_WEIGHTS_VERSION);
    flim_json_set_string(metadata, "preset", net->preset);
    set_size(metadata, "width", net->width);
    if (net->depth > 1) { /* the published network's files stay as they were */
        set_size(metadata, "depth", net->depth);
    }
    set_size(metadata, "T", net->in[0]);
    set_size(metadata, "H", net->in[1]);
    set_size(metadata, "W", net->in[2]);
    if (about && about->classes > 0) {
        flim_json *names = flim_json_array();
        for (int i = 0; i < about->classes; i++) {
            flim_json_add_string(names, about->class_name[i]);
        }
        char *text = flim_json_text(names);
        if (text) {
            flim_json_set_string(metadata, "class_names", text);
        } else {
            flim_json_set(metadata, "class_names", NULL); /* remembered as out of memory */
        }
        flim_json_text_free(text);
        flim_json_free(names);
    }
    flim_json_set_string(metadata, "preprocessing", flim_preprocessing_name(about && about->mask_counts));
    if (about && about->is_known) {
        char *text = flim_provenance_text(about, err);
        flim_json_set_string(metadata, "provenance", text);
        status = text ? FLIM_OK : FLIM_ERROR_MEMORY;
        flim_free(text);
    }
    *out = metadata;
    return status;
}

flim_status flim_weights_write(const char *path, const flim_network *net, const flim_provenance *about,
                               const float *parameters, const float *statistics, flim_error *err)
{
    flim_array_item items[FLIM_MAX_TENSORS];
    int n_items = 0;
    for (int i = 0; i < net->n_tensors; i++) {
        const flim_tensor *t = &net->tensor[i];
        const float *base = flim_tensor_is_statistic(t) ? statistics : parameters;
        if (base) {
            items[n_items++] = (flim_array_item){t->name, "F32", t->ndim, t->shape, base + t->offset};
        }
    }
    flim_json *metadata = NULL;
    const flim_status status = describe(net, about, &metadata, err);
    if (status != FLIM_OK) {
        flim_json_free(metadata);
        return status;
    }
    return flim_safetensors_write(path, metadata, items, n_items, err);
}

/* The rows of `from`, of which each has the first rows of `to`, one after the other: (O, I of to, taps). */
static void copy_input_channels(const flim_tensor *to, const flim_tensor *from, const float *in, float *out)
{
    const int64_t row = to->count / to->shape[0], whole = from->count / from->shape[0];
    for (int64_t o = 0; o < to->shape[0]; o++) {
        memcpy(out + o * row, in + o * whole, (size_t)row * sizeof *out);
    }
}

flim_status flim_weights_write_encoder(const char *path, const flim_network *classifier, const flim_network *net,
                                       const flim_provenance *about, const float *parameters, const float *statistics,
                                       flim_error *err)
{
    flim_array_item items[FLIM_MAX_TENSORS];
    int n_items = 0;
    float *stem = NULL;
    flim_json *metadata = NULL;
    flim_status status = FLIM_OK;
    for (int i = 0; i < classifier->n_tensors; i++) {
        const flim_tensor *t = &classifier->tensor[i];
        if (t->unit >= classifier->n_units) {
            continue;
        }
        const flim_tensor *from = flim_network_find(net, t->name);
        if (!from) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "%s: the pretrained network has no tensor '%s'", path, t->name));
        }
        const float *values = (flim_tensor_is_statistic(from) ? statistics : parameters) + from->offset;
        if (from->count != t->count && !stem) { /* one tensor reads the input */
            stem = flim_alloc((size_t)t->count, sizeof *stem, err);
            FLIM_TRY_DONE(stem ? FLIM_OK : FLIM_ERROR_MEMORY);
            copy_input_channels(t, from, values, stem);
            values = stem;
        }
        items[n_items++] = (flim_array_item){t->name, "F32", t->ndim, t->shape, values};
    }
    FLIM_TRY_DONE(describe(classifier, about, &metadata, err));
    status = flim_safetensors_write(path, metadata, items, n_items, err); /* which frees the metadata */
    metadata = NULL;
done:
    flim_json_free(metadata);
    flim_free(stem);
    return status;
}
