#include "flim/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/half.h"
#include "core/parse.h"
#include "core/try.h"
#include "formats/safetensors.h"

#define PREPROCESSING "log1p(counts)/10, mask"
#define PREPROCESSING_MASKED "log1p(counts inside mask)/10, mask"

const char *flim_preprocessing_name(bool mask_counts)
{
    return mask_counts ? PREPROCESSING_MASKED : PREPROCESSING;
}

/* ---- what a file says of itself */

/* A positive size from the metadata; 0 where the key is absent. */
static flim_status size_from_metadata(const flim_safetensors *file, const char *path, const char *key, int *out,
                                      flim_error *err)
{
    const char *text = flim_safetensors_metadata(file, key);
    int64_t value = 0;
    if (text && flim_parse_i64(key, text, 1, 1 << 20, &value, NULL) != FLIM_OK) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: __metadata__: %s is '%.40s', which is not a size of a cell", path, key,
                         text);
    }
    *out = (int)value;
    return FLIM_OK;
}

/* The metadata's list of `classes` names, the caller's; NULL if it has none. */
static flim_status class_names_from_metadata(const flim_safetensors *file, const char *path, int classes, flim_json **out,
                                             flim_error *err)
{
    const char *text = flim_safetensors_metadata(file, "class_names");
    *out = NULL;
    if (!text) {
        return FLIM_OK;
    }
    flim_json *names = NULL;
    flim_status status = flim_json_parse(text, strlen(text), "class_names", &names, err);
    if (status != FLIM_OK) {
        flim_fail_prefix(err, "%s: __metadata__: ", path);
        return status;
    }
    size_t n = flim_json_length(names);
    bool strings = flim_json_is_array(names);
    for (size_t i = 0; i < n; i++) {
        strings = strings && flim_json_string(flim_json_at(names, i));
    }
    if (!strings || n != (size_t)classes) {
        flim_json_free(names);
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: __metadata__: class_names must be a list of %d names (the classes of "
                         "head.fc2.weight), found %.120s",
                         path, classes, text);
    }
    *out = names;
    return FLIM_OK;
}

/* A tensor's name without what wrappers of PyTorch put before it: DistributedDataParallel "module.", torch.compile "_orig_mod.",
 * LightningModule the name of its attribute. */
static const char *bare_name(const char *name)
{
    static const char *const prefix[] = {"module.", "_orig_mod.", "model."};
    for (size_t i = 0; i < sizeof prefix / sizeof prefix[0];) {
        const size_t length = strlen(prefix[i]);
        if (strncmp(name, prefix[i], length) == 0) {
            name += length;
            i = 0;
        } else {
            i++;
        }
    }
    return name;
}

/* The tensor of that name, with or without a prefix; NULL if absent. */
static const flim_array_view *find(const flim_safetensors *file, const char *name)
{
    for (int64_t i = 0; i < flim_safetensors_count(file); i++) {
        const flim_array_view *array = flim_safetensors_at(file, i);
        if (strcmp(bare_name(array->name), name) == 0) {
            return array;
        }
    }
    return NULL;
}

/* How many residual blocks the file has at the first resolution. */
static int depth_of(const flim_safetensors *file)
{
    char name[FLIM_NAME_MAX];
    int depth = 0;
    do {
        depth++;
        snprintf(name, sizeof name, "res1_%d.conv1.weight", depth + 1);
    } while (depth < FLIM_MAX_DEPTH && find(file, name));
    return depth;
}

/* Width, depth and K' from names and shapes, the rest from the metadata where there is one; classes 0: an encoder without a head. */
static flim_status probe(const flim_safetensors *file, const char *path, flim_weights_info *info, flim_error *err)
{
    *info = (flim_weights_info){0};
    const char *version = flim_safetensors_metadata(file, "flimcv_format");
    if (version && strcmp(version, FLIM_WEIGHTS_VERSION) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: weights of format version %.20s, this program reads version %s", path,
                         version, FLIM_WEIGHTS_VERSION);
    }
    const flim_array_view *stem = find(file, "stem.conv.weight");
    const flim_array_view *last = find(file, "head.fc2.weight");
    if (!stem || (!last && !(version && !find(file, "head.fc1.weight")))) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: no tensor '%s': these are not weights of this network", path,
                         stem ? "head.fc2.weight" : "stem.conv.weight");
    }
    enum { LARGEST = 1 << 20 };
    char shape[160];
    if (stem->ndim != 5 || stem->shape[0] < 1 || stem->shape[0] > LARGEST) {
        flim_shape_text(stem->shape, stem->ndim, shape, sizeof shape);
        return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor 'stem.conv.weight' has shape %s, expected (width,2,7,1,1)", path,
                         shape);
    }
    if (last && (last->ndim != 2 || last->shape[0] < 1 || last->shape[0] == 2 || last->shape[0] > LARGEST)) {
        flim_shape_text(last->shape, last->ndim, shape, sizeof shape);
        return flim_fail(
            err, FLIM_ERROR_DATA,
            "%s: tensor 'head.fc2.weight' has shape %s, expected one row for two classes, else one row per class", path,
            shape);
    }
    info->has_metadata = version != NULL;
    info->width = (int)stem->shape[0];
    info->depth = depth_of(file);
    info->classes = !last ? 0 : last->shape[0] == 1 ? 2 : (int)last->shape[0];
    if (!info->has_metadata) {
        return FLIM_OK;
    }
    const char *preprocessing = flim_safetensors_metadata(file, "preprocessing");
    const char *sha256 = flim_safetensors_metadata(file, "sha256");
    snprintf(info->sha256, sizeof info->sha256, "%s", sha256 ? sha256 : "");
    snprintf(info->preprocessing, sizeof info->preprocessing, "%s", preprocessing ? preprocessing : "");
    info->mask_counts = strcmp(info->preprocessing, PREPROCESSING_MASKED) == 0;
    FLIM_TRY(size_from_metadata(file, path, "T", &info->t, err));
    FLIM_TRY(size_from_metadata(file, path, "H", &info->h, err));
    FLIM_TRY(size_from_metadata(file, path, "W", &info->w, err));
    flim_json *names;
    FLIM_TRY(class_names_from_metadata(file, path, info->classes, &names, err)); /* checked, though not used here */
    flim_json_free(names);
    return FLIM_OK;
}

static flim_status check_head(const char *path, const flim_weights_info *info, flim_error *err)
{
    return info->classes > 0 ? FLIM_OK
                             : flim_fail(err, FLIM_ERROR_DATA,
                                         "%s: an encoder without a head, which tells no classes apart: fine-tune it with "
                                         "train_cv --pretrained %s",
                                         path, path);
}

flim_status flim_weights_probe(const char *path, bool encoders, flim_weights_info *out, flim_error *err)
{
    flim_safetensors *file;
    *out = (flim_weights_info){0};
    FLIM_TRY(flim_safetensors_open(path, &file, err));
    flim_status status = probe(file, path, out, err);
    status = status == FLIM_OK && !encoders ? check_head(path, out, err) : status;
    flim_safetensors_close(file);
    return status;
}

/* What a file without a block says all the same: its class names, sizes and preprocessing. */
static flim_status from_older_keys(const flim_safetensors *file, const flim_weights_info *info, const char *path,
                                   flim_provenance *out, flim_error *err)
{
    flim_json *names = NULL;
    flim_status status = FLIM_OK;
    *out = (flim_provenance){.fold = -1, .t = info->t, .h = info->h, .w = info->w, .mask_counts = info->mask_counts};
    memcpy(out->preprocessing, info->preprocessing, sizeof out->preprocessing);
    FLIM_TRY(info->has_metadata ? class_names_from_metadata(file, path, info->classes, &names, err) : FLIM_OK);
    if (!names) {
        return FLIM_OK;
    }
    const char **list = flim_alloc((size_t)info->classes, sizeof *list, err);
    FLIM_TRY_DONE(list ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < info->classes; k++) {
        list[k] = flim_json_string(flim_json_at(names, (size_t)k));
    }
    status = flim_provenance_set_classes(out, info->classes, list, err);
done:
    flim_free(list);
    flim_json_free(names);
    return status;
}

flim_status flim_provenance_read(const char *path, flim_provenance *out, flim_error *err)
{
    flim_safetensors *file;
    flim_weights_info info;
    flim_status status = FLIM_OK;
    *out = (flim_provenance){.fold = -1};
    FLIM_TRY(flim_safetensors_open(path, &file, err));
    FLIM_TRY_DONE(probe(file, path, &info, err));
    const char *text = flim_safetensors_metadata(file, "provenance");
    status = info.has_metadata && text ? flim_provenance_parse(text, path, out, err)
                                       : from_older_keys(file, &info, path, out, err);
    if (status == FLIM_OK && out->classes != 0 && out->classes != info.classes) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: provenance: %d classes, but head.fc2.weight has %d", path, out->classes,
                           info.classes);
    }
done:
    flim_safetensors_close(file);
    if (status != FLIM_OK) {
        flim_provenance_free(out);
    }
    return status;
}

static flim_status check_size(const char *path, const flim_weights_info *info, const flim_network *net, flim_error *err)
{
    if (info->width != net->width || info->depth != net->depth) {
        const bool wide = info->width != net->width;
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: weights of %s %d, but the network has %s %d (preset %s): choose the size of the weights "
                         "(--preset, or --width %d --depth %d)",
                         path, wide ? "width" : "depth", wide ? info->width : info->depth, wide ? "width" : "depth",
                         wide ? net->width : net->depth, net->preset, info->width, info->depth);
    }
    return FLIM_OK;
}

static flim_status check_preprocessing(const char *path, const flim_weights_info *info, flim_error *err)
{
    if (info->has_metadata && info->preprocessing[0] && !info->mask_counts &&
        strcmp(info->preprocessing, PREPROCESSING) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: weights for the preprocessing '%s', this program does '%s'", path,
                         info->preprocessing, PREPROCESSING);
    }
    return FLIM_OK;
}

/* What differs as a whole is said as a whole, before any single tensor is blamed. */
static flim_status check_network(const char *path, const flim_weights_info *info, const flim_network *net, bool any_classes,
                                 flim_error *err)
{
    FLIM_TRY(check_head(path, info, err));
    FLIM_TRY(check_size(path, info, net, err));
    if (info->classes != net->classes && !any_classes) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: weights for %d classes, but the data has %d", path, info->classes,
                         net->classes);
    }
    if ((info->t && info->t != net->in[0]) || (info->h && info->h != net->in[1]) || (info->w && info->w != net->in[2])) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: weights for cells of %d time bins x %d x %d pixels, but the data has %d x %d x %d", path,
                         info->t, info->h, info->w, net->in[0], net->in[1], net->in[2]);
    }
    return check_preprocessing(path, info, err);
}

static bool is_ignored(const char *name)
{
    static const char suffix[] = ".num_batches_tracked"; /* PyTorch's BatchNorm counts its batches */
    size_t length = strlen(name), tail = sizeof suffix - 1;
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

bool flim_weights_is_last_layer(const flim_tensor *tensor)
{
    return strncmp(tensor->name, "head.fc2.", 9) == 0;
}

/* Bytes of a type of floats that is read; 0 for every other. */
static size_t float_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"F32", 4}, {"F64", 8}, {"F16", 2}, {"BF16", 2}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(dtype, types[i].name) == 0) {
            return types[i].bytes;
        }
    }
    return 0;
}

/* One tensor of the file: it belongs to the network, with the network's shape, as floats, and is there once. */
static flim_status check_tensor(const flim_safetensors *file, const char *path, const flim_array_view *found,
                                const flim_network *net, bool skip_last, flim_error *err)
{
    const flim_tensor *want = flim_network_find(net, bare_name(found->name));
    if (!want) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%.80s' does not belong to this network", path, found->name);
    }
    if (find(file, want->name) != found) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: '%.80s' and '%.80s' are the same tensor: which one is meant?", path,
                         find(file, want->name)->name, found->name);
    }
    if (!float_bytes(found->dtype)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%s' is of type %.20s; F32, F64, F16 and BF16 are read", path,
                         found->name, found->dtype);
    }
    bool same = found->ndim == want->ndim || (skip_last && flim_weights_is_last_layer(want));
    for (int d = 0; same && d < want->ndim && !(skip_last && flim_weights_is_last_layer(want)); d++) {
        same = found->shape[d] == want->shape[d];
    }
    if (!same) {
        char is[160], should[160];
        int64_t shape[5];
        for (int d = 0; d < want->ndim; d++) {
            shape[d] = want->shape[d];
        }
        flim_shape_text(found->shape, found->ndim, is, sizeof is);
        flim_shape_text(shape, want->ndim, should, sizeof should);
        return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%s' has shape %s, the network wants %s", path, found->name, is,
                         should);
    }
    return FLIM_OK;
}

/* Every tensor of the file fits, and none is missing.  skip_last: the last layer may be of other classes. */
static flim_status check_tensors(const flim_safetensors *file, const char *path, const flim_network *net,
                                 bool need_statistics, bool skip_last, flim_error *err)
{
    for (int64_t i = 0; i < flim_safetensors_count(file); i++) {
        const flim_array_view *found = flim_safetensors_at(file, i);
        if (!is_ignored(found->name)) {
            FLIM_TRY(check_tensor(file, path, found, net, skip_last, err));
        }
    }
    for (int i = 0; i < net->n_tensors; i++) {
        const flim_tensor *want = &net->tensor[i];
        if ((need_statistics || !flim_tensor_is_statistic(want)) && !find(file, want->name)) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%s' is missing", path, want->name);
        }
    }
    return FLIM_OK;
}

/* count values of the type at `bytes` into out; what a float cannot hold becomes infinite. */
static void convert(const char *dtype, const unsigned char *bytes, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(dtype, "F64") == 0) {
            double value;
            memcpy(&value, bytes + 8 * i, sizeof value);
            out[i] = (float)value;
        } else {
            uint16_t half;
            memcpy(&half, bytes + 2 * i, sizeof half);
            const uint32_t bits = (uint32_t)half << 16;
            if (strcmp(dtype, "F16") == 0) {
                out[i] = flim_float_of_half(half);
            } else {
                memcpy(&out[i], &bits, sizeof bits); /* BF16: the upper half of a float */
            }
        }
    }
}

/* The tensor's values (array->count) as floats. */
static flim_status read_floats(flim_safetensors *file, const flim_array_view *array, float *out, flim_error *err)
{
    if (float_bytes(array->dtype) == sizeof(float)) {
        return flim_safetensors_read(file, array, out, err);
    }
    unsigned char *bytes = flim_alloc((size_t)array->count, float_bytes(array->dtype), err);
    flim_status status = bytes ? flim_safetensors_read(file, array, bytes, err) : FLIM_ERROR_MEMORY;
    if (status == FLIM_OK) {
        convert(array->dtype, bytes, array->count, out);
    }
    flim_free(bytes);
    return status;
}

static flim_status check_values(const char *path, const flim_tensor *tensor, const float *values, flim_error *err)
{
    for (int64_t i = 0; i < tensor->count; i++) {
        if (!isfinite(values[i])) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%s': value %" PRId64 " is %g, not a finite number", path,
                             tensor->name, i, (double)values[i]);
        }
        if (tensor->role == FLIM_TENSOR_RUNNING_VAR && values[i] < 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%s': value %" PRId64 " is %g, but a variance is not negative",
                             path, tensor->name, i, (double)values[i]);
        }
    }
    return FLIM_OK;
}

/* last_layer_is_new NULL: the last layer is needed, too. */
static flim_status read_weights(const char *path, const flim_network *net, float *parameters, float *statistics,
                                bool *last_layer_is_new, flim_error *err)
{
    flim_safetensors *file;
    flim_weights_info info;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_safetensors_open(path, &file, err));
    FLIM_TRY_DONE(probe(file, path, &info, err));
    FLIM_TRY_DONE(check_network(path, &info, net, last_layer_is_new != NULL, err));
    const bool skip_last = info.classes != net->classes;
    FLIM_TRY_DONE(check_tensors(file, path, net, statistics != NULL, skip_last, err));
    FLIM_TRY_DONE(flim_safetensors_verify(file, err));
    for (int i = 0; i < net->n_tensors; i++) {
        const flim_tensor *t = &net->tensor[i];
        float *base = flim_tensor_is_statistic(t) ? statistics : parameters;
        if (base && !(skip_last && flim_weights_is_last_layer(t))) {
            FLIM_TRY_DONE(read_floats(file, find(file, t->name), base + t->offset, err));
            FLIM_TRY_DONE(check_values(path, t, base + t->offset, err));
        }
    }
    if (last_layer_is_new) {
        *last_layer_is_new = skip_last;
    }
done:
    flim_safetensors_close(file);
    return status;
}

flim_status flim_weights_read_encoder(const char *path, const flim_network *net, float *parameters, float *statistics,
                                      flim_error *err)
{
    flim_safetensors *file;
    flim_weights_info info;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_safetensors_open(path, &file, err));
    FLIM_TRY_DONE(probe(file, path, &info, err));
    FLIM_TRY_DONE(check_size(path, &info, net, err));
    FLIM_TRY_DONE(check_preprocessing(path, &info, err));
    FLIM_TRY_DONE(flim_safetensors_verify(file, err));
    for (int i = 0; i < net->n_tensors; i++) {
        const flim_tensor *t = &net->tensor[i];
        float *base = flim_tensor_is_statistic(t) ? statistics : parameters;
        const flim_array_view *found = t->unit < net->n_units ? find(file, t->name) : NULL;
        if (t->unit >= net->n_units) {
            continue;
        }
        if (!found) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%s' is missing", path, t->name));
        }
        FLIM_TRY_DONE(check_tensor(file, path, found, net, false, err));
        FLIM_TRY_DONE(read_floats(file, found, base + t->offset, err));
        FLIM_TRY_DONE(check_values(path, t, base + t->offset, err));
    }
done:
    flim_safetensors_close(file);
    return status;
}

flim_status flim_weights_read(const char *path, const flim_network *net, float *parameters, float *statistics,
                              flim_error *err)
{
    return read_weights(path, net, parameters, statistics, NULL, err);
}

flim_status flim_weights_read_to_start(const char *path, const flim_network *net, float *parameters, float *statistics,
                                       bool *last_layer_is_new, flim_error *err)
{
    return read_weights(path, net, parameters, statistics, last_layer_is_new, err);
}

flim_status flim_weights_check_finite(const flim_network *net, const float *parameters, const float *statistics,
                                      flim_error *err)
{
    for (int i = 0; i < net->n_tensors; i++) {
        const flim_tensor *t = &net->tensor[i];
        FLIM_TRY(
            check_values("the trained weights", t, (flim_tensor_is_statistic(t) ? statistics : parameters) + t->offset, err));
    }
    return FLIM_OK;
}
