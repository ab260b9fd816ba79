/* gpu_plan --list: the cards there are files of. */
#include <stdio.h>
#include <string.h>

#include "backend/precision.h"
#include "core/try.h"
#include "plan/plan.h"

enum { NAME_WIDTH = 31, WIDTH_WITH_NAMES = 112 };

typedef struct listing {
    const flim_log *log;
    int name_width; /* 0 = without names */
    flim_json *rows;
} listing;

/* Right-aligned in 9 columns, as the heading has it; "-" = not known. */
static void rate_text(double value, char text[16])
{
    if (value > 0) {
        snprintf(text, 16, "%.4g", value);
    } else {
        snprintf(text, 16, "-");
    }
}

static void set_rate(flim_json *row, const char *key, double value)
{
    if (value > 0) {
        flim_json_set_number(row, key, value);
    } else {
        flim_json_set_null(row, key);
    }
}

static flim_status list_card(void *context, const char *stem, const flim_card *card, flim_error *err)
{
    (void)err;
    const listing *l = context;
    const flim_precision_rule *rule = flim_precision_rule_of("cuda", card->capability);
    const bool runs = card->capability >= FLIM_LEAST_CAPABILITY;
    char name[64], bandwidth[16], full[16], half[16], precisions[48] = "";
    snprintf(name, sizeof name, " %.60s", card->name);
    rate_text(card->bandwidth_gb, bandwidth);
    rate_text(card->fp32_tflops, full);
    rate_text(card->half_tflops, half);
    flim_precision_list(rule->precisions, FLIM_PRECISION_AUTO, precisions);
    flim_log_line(l->log, FLIM_LOG_INFO, "%-11s%-*.*s %3d.%d %6.1f %6s %6s %6s  %-22s %-4s %s", stem, l->name_width,
                  l->name_width ? l->name_width - 1 : 0, name, card->capability / 10, card->capability % 10,
                  (double)card->memory_bytes / 1e9, bandwidth, full, half, runs ? precisions : "not supported: below 7.5",
                  runs ? flim_precision_name(rule->automatic) : "-", runs ? flim_precision_name(rule->amp) : "-");
    flim_json *row = flim_json_object();
    flim_json_set_string(row, "file", stem);
    flim_json_set_string(row, "name", card->name);
    flim_json_set_number(row, "capability", card->capability / 10.0);
    flim_json_set_integer(row, "memory_bytes", card->memory_bytes);
    set_rate(row, "bandwidth_gb", card->bandwidth_gb);
    set_rate(row, "fp32_tflops", card->fp32_tflops);
    set_rate(row, "half_tflops", card->half_tflops);
    flim_json_set_bool(row, "supported", runs);
    flim_json_set_string(row, "precisions", runs ? precisions : NULL);
    flim_json_set_string(row, "auto", runs ? flim_precision_name(rule->automatic) : NULL);
    flim_json_set_string(row, "amp", runs ? flim_precision_name(rule->amp) : NULL);
    flim_json_add(l->rows, row);
    return FLIM_OK;
}

flim_status flim_gpu_plan_list(const char *devices, int columns, const flim_log *log, flim_json **json, flim_error *err)
{
    char folder[4096];
    listing l = {log, columns == 0 || columns >= WIDTH_WITH_NAMES ? NAME_WIDTH : 0, flim_json_array()};
    flim_status status = FLIM_OK;
    *json = flim_json_object();
    if (devices && devices[0]) {
        snprintf(folder, sizeof folder, "%.4000s", devices);
    } else {
        FLIM_TRY_DONE(flim_card_folder(folder, err));
    }
    flim_log_line(log, FLIM_LOG_INFO, "%-11s%-*s %5s %6s %6s %6s %6s", "", l.name_width, "", "capa-", "memory", "GB", "fp32",
                  "fp16");
    flim_log_line(log, FLIM_LOG_INFO, "%-11s%-*.*s %5s %6s %6s %6s %6s  %-22s %-4s %s", "--gpu", l.name_width, l.name_width,
                  " card", "bility", "GB", "per s", "TFLOPs", "TFLOPs", "precisions", "auto", "amp");
    FLIM_TRY_DONE(flim_card_each(folder, list_card, &l, err));
    flim_log_line(log, FLIM_LOG_INFO,
                  "Rates are the makers' peaks: fp16 products with fp32 sums on tensor cores, which tf32 is here, too;");
    flim_log_line(log, FLIM_LOG_INFO, "every figure has its source in %s", folder);
done:
    flim_json_set(*json, "cards", l.rows);
    return status;
}
