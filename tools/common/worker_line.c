#include "common/worker_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PART_BYTES = 96 };

/* What a worker's part says beside its fold; each level leaves out one more. */
typedef enum detail { ALL, NO_NAME, NO_LOSS, NO_SHARE, NO_EPOCHS, N_LEVELS } detail;

/* "cuda:0 fold 3 epoch 12/75 45 % loss 0.5123" */
static void part_text(const flim_worker_view *w, detail level, char out[PART_BYTES])
{
    static const char *const phases[] = {"scan", "", "val", "test", "holdout", "import", "predict"};
    const flim_progress *p = &w->progress;
    int used = level < NO_NAME ? snprintf(out, PART_BYTES, "%s ", w->name) : 0;
    char *at = out + used;
    size_t room = PART_BYTES - (size_t)used;
    if (!w->at_work || p->folds == 0) {
        snprintf(at, room, "%s", w->at_work ? "starting" : "idle");
        return;
    }
    used = p->fold < 0 ? snprintf(at, room, "final model") : snprintf(at, room, "fold %d", p->fold);
    if (level < NO_EPOCHS && p->pretraining) {
        used += snprintf(at + used, room - (size_t)used, " pretraining");
    }
    if (level < NO_EPOCHS) {
        used += snprintf(at + used, room - (size_t)used, " epoch %" PRId64 "/%" PRId64, p->epoch, p->epochs);
    }
    if (level < NO_SHARE && p->total > 0) {
        used += snprintf(at + used, room - (size_t)used, " %s%s%d %%", phases[p->phase], phases[p->phase][0] ? " " : "",
                         (int)(100 * p->done / p->total));
    }
    if (level < NO_LOSS && isfinite(p->loss)) {
        snprintf(at + used, room - (size_t)used, " loss %.4f", p->loss);
    }
}

/* As many workers as there is room for; false if some are left out. */
static bool put(const flim_worker_view *worker, int n, detail level, int room, char out[PROGRESS_BAR_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        char part[PART_BYTES];
        part_text(&worker[i], level, part);
        const size_t more = strlen(part) + (i ? 3 : 0); /* ASCII: a byte is a column */
        if (used + more > (size_t)room || used + more >= PROGRESS_BAR_BYTES) {
            return false;
        }
        used += (size_t)snprintf(out + used, PROGRESS_BAR_BYTES - used, "%s%s", i ? " | " : "", part);
    }
    return true;
}

void worker_line_text(const flim_worker_view *worker, int n, int columns, char out[PROGRESS_BAR_BYTES])
{
    for (detail level = ALL; level < N_LEVELS; level++) {
        if (put(worker, n, level, columns > 1 ? columns - 1 : 1, out)) {
            return;
        }
    }
}
