#include "common/progress_bar.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BAR_LEAST = 8, BAR_MOST = 24, PART_BYTES = 128 };

/* Parts of the line in the order in which they are shown. */
typedef enum part { WHERE, PHASE, BAR, COUNT, RATE, CELLS, LOSS, DEVICE, LEFT, RUN_LEFT, N_PARTS } part;

/* What is left out first, if the terminal is narrow; where and phase stay. */
static const part least_important_first[] = {CELLS, DEVICE, COUNT, BAR, RUN_LEFT, RATE, LOSS, LEFT};

int progress_bar_columns(const char *text)
{
    int columns = 0;
    for (; *text; text++) {
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return columns;
}

/* "1:02:03", or "2:03". */
static void format_time(double seconds, char out[24])
{
    const int64_t s = isfinite(seconds) && seconds > 0 && seconds < 1e9 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(out, 24, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    } else {
        snprintf(out, 24, "%d:%02d", (int)(s / 60), (int)(s % 60));
    }
}

/* Folds are counted from 0, as in folder names and log lines. */
static void where_text(const flim_progress *p, char out[PART_BYTES])
{
    if (p->folds <= 0) {
        return;
    }
    if (p->phase == FLIM_PHASE_PREDICT) {
        snprintf(out, PART_BYTES, "model %d of %d", p->fold + 1, p->folds);
        return;
    }
    char name[48] = "final model";
    if (p->fold >= 0) {
        snprintf(name, sizeof name, "fold %d (0..%d)", p->fold, p->folds - 1);
    }
    snprintf(out, PART_BYTES, "%s%s epoch %" PRId64 "/%" PRId64, name, p->pretraining ? " pretraining" : "", p->epoch,
             p->epochs);
}

/* "GPU 87 % 19.6 GiB 65 W 61 °C", without what is not known. */
static void device_text(const flim_device_status *s, char out[PART_BYTES])
{
    if (!s || isnan(s->busy)) {
        return;
    }
    const struct {
        double value;
        const char *format;
    } figure[] = {{100 * s->busy, "GPU %.0f %%"},
                  {s->memory_bytes / 1073741824.0, " %.1f GiB"},
                  {s->watts, " %.0f W"},
                  {s->celsius, " %.0f °C"}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof figure / sizeof figure[0] && used < PART_BYTES; i++) {
        if (!isnan(figure[i].value)) {
            const int wrote = snprintf(out + used, PART_BYTES - used, figure[i].format, figure[i].value);
            used += wrote > 0 ? (size_t)wrote : 0;
        }
    }
}

static void draw_bar(const flim_progress *p, int width, char out[PART_BYTES])
{
    const int full = p->total > 0 ? (int)(p->done * width / p->total) : 0;
    out[0] = '\0';
    for (int i = 0; i < width; i++) {
        strncat(out, i < full ? "█" : "░", PART_BYTES - strlen(out) - 1);
    }
}

static void fill(const flim_progress *p, char text[N_PARTS][PART_BYTES])
{
    static const char *const phases[] = {"scan", "train", "val", "test", "holdout", "import", "predict"};
    const double rate = p->seconds > 0 ? (double)p->done / p->seconds : 0;
    char time[24];
    where_text(p, text[WHERE]);
    snprintf(text[PHASE], PART_BYTES, "%s", phases[p->phase]);
    draw_bar(p, BAR_LEAST, text[BAR]);
    snprintf(text[COUNT], PART_BYTES, "%" PRId64 "/%" PRId64, p->done, p->total);
    snprintf(text[RATE], PART_BYTES, "%.2f it/s", rate);
    snprintf(text[CELLS], PART_BYTES, "%.1f cells/s", p->seconds > 0 ? (double)p->cells / p->seconds : 0);
    if (isfinite(p->loss)) {
        snprintf(text[LOSS], PART_BYTES, "loss %.4f", p->loss);
    }
    device_text(p->device, text[DEVICE]);
    if (rate > 0) {
        const double left = (double)(p->total - p->done) / rate;
        format_time(left, time);
        snprintf(text[LEFT], PART_BYTES, "%s left", time);
        if (p->epochs_left > 0) {
            format_time(left + (double)p->epochs_left * (double)p->total / rate, time);
            snprintf(text[RUN_LEFT], PART_BYTES, "(run %s)", time);
        }
    }
}

static int width_of(char text[N_PARTS][PART_BYTES])
{
    int columns = -1; /* a blank between two parts */
    for (int i = 0; i < N_PARTS; i++) {
        columns += text[i][0] ? progress_bar_columns(text[i]) + 1 : 0;
    }
    return columns;
}

void progress_bar_text(const flim_progress *p, int columns, char out[PROGRESS_BAR_BYTES])
{
    char text[N_PARTS][PART_BYTES] = {{0}};
    const int room = columns > 1 ? columns - 1 : 1;
    fill(p, text);
    for (size_t i = 0; i < sizeof least_important_first / sizeof least_important_first[0] && width_of(text) > room; i++) {
        text[least_important_first[i]][0] = '\0';
    }
    if (text[BAR][0]) {
        const int free_columns = room - width_of(text), most = BAR_MOST - BAR_LEAST;
        draw_bar(p, BAR_LEAST + (free_columns < most ? free_columns : most), text[BAR]);
    }
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < N_PARTS; i++) {
        if (text[i][0]) {
            used += (size_t)snprintf(out + used, PROGRESS_BAR_BYTES - used, "%s%s", used ? " " : "", text[i]);
        }
    }
    if (width_of(text) > room) { /* where and phase alone, which are ASCII */
        out[room] = '\0';
    }
}
