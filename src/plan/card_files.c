/* Cards from files: configs/devices/NAME.json, each figure with its source. */
#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/parse.h"
#include "core/try.h"
#include "plan/plan.h"

enum { NAME_ROOM = 128, MOST_CARDS = 64 };

static flim_status figure(const flim_json *card, const char *path, const char *key, int64_t least, int64_t most, int64_t *out,
                          flim_error *err)
{
    const flim_json *entry = flim_json_get(card, key);
    const char *source = flim_json_string(flim_json_get(entry, "source"));
    if (!flim_json_integer(flim_json_get(entry, "value"), out) || *out < least || *out > most || !source || !source[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s: %s: expected {\"value\": a whole number from %" PRId64 " to %" PRId64
                         ", \"source\": where it is from}",
                         path, key, least, most);
    }
    return FLIM_OK;
}

/* A figure that no plan needs: *out is 0 if the file has none. */
static flim_status rate(const flim_json *card, const char *path, const char *key, double *out, flim_error *err)
{
    const flim_json *entry = flim_json_get(card, key);
    const char *source = flim_json_string(flim_json_get(entry, "source"));
    *out = 0;
    if (entry && (!flim_json_number(flim_json_get(entry, "value"), out) || !(*out > 0) || !source || !source[0])) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s: %s: expected {\"value\": a number above 0, \"source\": where it is from}", path, key);
    }
    return FLIM_OK;
}

static flim_status read_json(const char *path, flim_json **json, flim_error *err)
{
    flim_status status = flim_json_read(path, json, err);
    return status == FLIM_ERROR_DATA ? flim_fail(err, FLIM_ERROR_USAGE, "%s", err ? err->text : path) : status;
}

flim_status flim_card_read(const char *path, flim_card *out, flim_error *err)
{
    flim_json *json = NULL;
    *out = (flim_card){0};
    flim_status status = read_json(path, &json, err);
    if (status != FLIM_OK) {
        return status;
    }
    const char *name = flim_json_string(flim_json_get(json, "name"));
    if (!name || !name[0] || strlen(name) >= sizeof out->name || strpbrk(name, "\"\\")) {
        status = flim_fail(err, FLIM_ERROR_USAGE, "%s: name: expected the card's name as CUDA reports it", path);
    } else {
        snprintf(out->name, sizeof out->name, "%s", name);
    }
    int64_t small[8] = {0};
    const struct {
        const char *key;
        int64_t *value, least, most;
    } rows[] = {{"memory_bytes", &out->memory_bytes, 1 << 20, (int64_t)1 << 44},
                {"context_bytes", &out->context_bytes, 1, (int64_t)1 << 40},
                {"l2_bytes", &out->l2_bytes, 1 << 16, (int64_t)1 << 34},
                {"capability", &small[0], 50, 999},
                {"processors", &small[1], 1, 4096},
                {"shared_bytes", &small[2], 49152, 1 << 24},
                {"registers", &small[3], 1024, 1 << 24},
                {"threads", &small[4], 32, 1 << 16},
                {"blocks", &small[5], 1, 1024},
                {"core_khz", &small[6], 1000, 100000000},
                {"memory_khz", &small[7], 1000, 100000000}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == FLIM_OK; i++) {
        status = figure(json, path, rows[i].key, rows[i].least, rows[i].most, rows[i].value, err);
    }
    const struct {
        const char *key;
        double *value;
    } rates[] = {
        {"bandwidth_gb", &out->bandwidth_gb}, {"fp32_tflops", &out->fp32_tflops}, {"half_tflops", &out->half_tflops}};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0] && status == FLIM_OK; i++) {
        status = rate(json, path, rates[i].key, rates[i].value, err);
    }
    flim_json_free(json);
    out->capability = (int)small[0];
    out->processors = (int)small[1];
    out->shared_bytes = (int)small[2];
    out->registers = (int)small[3];
    out->threads = (int)small[4];
    out->blocks = (int)small[5];
    out->core_khz = (int)small[6];
    out->memory_khz = (int)small[7];
    return status;
}

/* Lower case, letters and digits only, without the maker's name: "NVIDIA A100-PCIE-40GB" and "a100 pcie 40gb" are one. */
static void fold_name(const char *name, char out[NAME_ROOM])
{
    size_t used = 0;
    for (; *name && used + 1 < NAME_ROOM; name++) {
        if (isalnum((unsigned char)*name)) {
            out[used++] = (char)tolower((unsigned char)*name);
        }
    }
    out[used] = '\0';
    if (strncmp(out, "nvidia", 6) == 0) {
        memmove(out, out + 6, strlen(out + 6) + 1);
    }
}

static bool is_named(const char *path, const char *stem, const char *wanted)
{
    char folded[NAME_ROOM];
    fold_name(stem, folded);
    bool same = strcmp(folded, wanted) == 0;
    flim_json *json = NULL;
    if (same || flim_json_read(path, &json, NULL) != FLIM_OK) {
        return same;
    }
    const char *name = flim_json_string(flim_json_get(json, "name"));
    const flim_json *aliases = flim_json_get(json, "aliases");
    if (name) {
        fold_name(name, folded);
        same = strcmp(folded, wanted) == 0;
    }
    for (size_t i = 0; i < flim_json_length(aliases) && !same; i++) {
        const char *alias = flim_json_string(flim_json_at(aliases, i));
        fold_name(alias ? alias : "", folded);
        same = strcmp(folded, wanted) == 0;
    }
    flim_json_free(json);
    return same;
}

typedef char file_stem[NAME_ROOM];

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The stems of a folder's .json files, sorted. */
static flim_status list_cards(const char *folder, file_stem stem[MOST_CARDS], int *n, flim_error *err)
{
    *n = 0;
    DIR *dir = opendir(folder);
    if (!dir) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: the folder of the cards cannot be read; name it with --devices", folder);
    }
    for (struct dirent *entry = readdir(dir); entry && *n < MOST_CARDS; entry = readdir(dir)) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && length - 5 < sizeof(file_stem) && strcmp(entry->d_name + length - 5, ".json") == 0) {
            snprintf(stem[(*n)++], sizeof(file_stem), "%.*s", (int)(length - 5), entry->d_name);
        }
    }
    closedir(dir);
    qsort(stem, (size_t)*n, sizeof(file_stem), by_name);
    return *n ? FLIM_OK
              : flim_fail(err, FLIM_ERROR_USAGE, "%s has no cards (NAME.json); name their folder with --devices", folder);
}

flim_status flim_card_find(const char *folder, const char *name, flim_card *out, char path[4096], flim_error *err)
{
    file_stem stem[MOST_CARDS];
    char wanted[NAME_ROOM], file[4096], all[1024] = "";
    int n;
    FLIM_TRY(list_cards(folder, stem, &n, err));
    fold_name(name, wanted);
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof file, "%.3900s/%.120s.json", folder, stem[i]);
        if (is_named(file, stem[i], wanted)) {
            if (path) {
                memcpy(path, file, sizeof file);
            }
            return flim_card_read(file, out, err);
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%.120s", used ? ", " : "", stem[i]);
    }
    const char *names[MOST_CARDS];
    for (int i = 0; i < n; i++) {
        names[i] = stem[i];
    }
    const char *near = flim_nearest(wanted, names, n);
    return flim_fail(err, FLIM_ERROR_USAGE, "no card '%.80s' in %s%s%s%s; there are %s; --gpu-memory accepts any size", name,
                     folder, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", all);
}

flim_status flim_card_each(const char *folder, flim_card_taker *take, void *context, flim_error *err)
{
    file_stem stem[MOST_CARDS];
    int n;
    flim_status status = list_cards(folder, stem, &n, err);
    for (int i = 0; i < n && status == FLIM_OK; i++) {
        char file[4096];
        flim_card card;
        snprintf(file, sizeof file, "%.3900s/%.120s.json", folder, stem[i]);
        status = flim_card_read(file, &card, err);
        status = status == FLIM_OK ? take(context, stem[i], &card, err) : status;
    }
    return status;
}

typedef struct nearest {
    int64_t bytes;
    flim_card *out;
} nearest;

static flim_status keep_nearest(void *context, const char *stem, const flim_card *card, flim_error *err)
{
    (void)stem, (void)err;
    const nearest *wanted = context;
    flim_card *out = wanted->out;
    const bool nearer = llabs(card->memory_bytes - wanted->bytes) < llabs(out->memory_bytes - wanted->bytes);
    if (card->capability >= FLIM_LEAST_CAPABILITY && (!out->memory_bytes || nearer)) {
        *out = *card;
    }
    return FLIM_OK;
}

flim_status flim_card_nearest(const char *folder, int64_t bytes, flim_card *out, flim_error *err)
{
    nearest wanted = {bytes, out};
    *out = (flim_card){0};
    FLIM_TRY(flim_card_each(folder, keep_nearest, &wanted, err));
    return out->memory_bytes > 0 ? FLIM_OK
                                 : flim_fail(err, FLIM_ERROR_USAGE,
                                             "%s holds no card that can be planned for; name another with --devices", folder);
}

flim_status flim_card_folder(char folder[4096], flim_error *err)
{
    const char *named = getenv("FLIM_DEVICES");
    if (named && named[0]) {
        snprintf(folder, 4096, "%.4000s", named);
        return FLIM_OK;
    }
    char program[3072];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        program[length] = '\0';
        char *slash = strrchr(program, '/');
        if (slash) {
            *slash = '\0';
            snprintf(folder, 4096, "%s/../share/flimcv/devices", program);
            if (access(folder, R_OK) == 0) {
                return FLIM_OK;
            }
        }
    }
    static const char source[] = FLIM_SOURCE_FOLDER "/configs/devices";
    _Static_assert(sizeof source <= 4096, "a path of the sources");
    memcpy(folder, source, sizeof source); /* gcc's -fsanitize=undefined warns of snprintf here */
    return access(folder, R_OK) == 0
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE,
                           "the files of the cards (share/flimcv/devices) were not found; name their folder with --devices");
}

flim_status flim_parse_bytes(const char *what, const char *text, int64_t *out, flim_error *err)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"gib", 0x1p30}, {"gb", 1e9}, {"mib", 0x1p20}, {"mb", 1e6}, {"tib", 0x1p40}, {"tb", 1e12}, {"", 1e9}};
    size_t digits = strspn(text, "0123456789.eE+");
    char number[64], unit[8] = "";
    const char *at = text + digits;
    while (*at == ' ') {
        at++;
    }
    for (size_t i = 0; i + 1 < sizeof unit && at[i]; i++) {
        unit[i] = (char)tolower((unsigned char)at[i]);
        unit[i + 1] = '\0';
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        double value;
        if (digits > 0 && digits < sizeof number && strlen(at) < sizeof unit && strcmp(unit, units[i].unit) == 0) {
            snprintf(number, sizeof number, "%.*s", (int)digits, text);
            flim_error why = {0};
            if (flim_parse_double(what, number, 0, 1e15, &value, &why) == FLIM_OK && value * units[i].bytes >= 1 &&
                value * units[i].bytes < 1e16) {
                *out = (int64_t)(value * units[i].bytes);
                return FLIM_OK;
            }
        }
    }
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "%s: '%.80s' is not a size; expected a number of GB, or one with GB (10^9 bytes), GiB (2^30), MB or MiB",
                     what, text);
}
