#include "config/synonyms.h"

#include <ctype.h>
#include <string.h>

#include "core/parse.h"

enum { LONGEST_NAME = 80, MOST_ROWS = 256 };

/* A flag and what scikit-learn, PyTorch, Lightning, Keras, Hugging Face, nnU-Net and their users call it. */
static const struct {
    const char *flag, *words; /* each between blanks */
} synonyms[] = {
    {"lr", " learning-rate base-lr init-lr initial-lr lr0 eta step-size "},
    {"weight-decay", " wd l2 decay "},
    {"batch", " batch-size bs train-batch-size per-device-train-batch-size minibatch mini-batch "},
    {"eval-batch", " eval-batch-size val-batch-size test-batch-size per-device-eval-batch-size "},
    {"workers", " num-workers n-workers nworkers n-jobs threads num-threads dataloader-workers cpus "},
    {"prefetch", " prefetch-factor "},
    {"precision", " amp use-amp fp16 bf16 tf32 half mixed-precision dtype "},
    {"devices", " gpus gpu-ids "},
    {"device", " gpu gpu-id cuda use-cuda no-cuda accelerator "},
    {"init-weights", " weights checkpoint ckpt load init-from "},
    {"pretrained", " pretrained-weights pretrained-encoder encoder backbone finetune fine-tune transfer "},
    {"model", " weights checkpoint ckpt pretrained init-weights run run-dir "},
    {"data", " manifest dataset datasets data-dir data-path data-root data-file input inputs train-data h5 hdf5 "},
    {"splits", " split split-file splits-file fold-file "},
    {"folds", " n-splits n-folds num-folds k-folds kfold kfolds cv-folds "},
    {"fold", " fold-id fold-index "},
    {"cv", " cv-mode split-mode split-type splitter "},
    {"holdout-group", " holdout held-out test-group test-groups leave-out "},
    {"val-fraction", " val-split validation-split val-size validation-size validation-fraction test-size "},
    {"seed", " random-state random-seed manual-seed rng-seed "},
    {"patience", " early-stopping early-stop es-patience early-stopping-patience "},
    {"monitor", " metric early-stopping-metric metric-for-best-model criterion "},
    {"epochs", " max-epochs num-epochs n-epochs num-train-epochs nb-epochs epoch "},
    {"out", " output output-dir output-folder out-dir outdir output-path output-file save-dir save-path logdir log-dir o "},
    {"preset", " model arch architecture backbone net network model-size size variant "},
    {"clip", " grad-clip clip-grad clip-norm max-grad-norm gradient-clip-val gradient-clip clip-grad-norm "},
    {"accumulate", " accumulation-steps gradient-accumulation-steps accumulate-grad-batches grad-accum grad-accumulation "},
    {"checkpoint-activations", " gradient-checkpointing activation-checkpointing grad-checkpointing use-checkpoint "},
    {"dropout", " dropout-rate drop-rate drop p-drop "},
    {"label-smoothing", " smoothing smooth "},
    {"sampler", " sampling weighted-sampler class-weight class-weights balanced oversample "},
    {"augment", " augmentation augmentations aug data-augmentation transforms "},
    {"tta", " test-time-augmentation flips flip "},
    {"resume", " continue resume-from resume-from-checkpoint restart "},
    {"config", " cfg config-file settings params yaml "},
    {"quiet", " silent "},
    {"verbose", " debug "},
    {"benchmark", " cudnn-benchmark autotune "},
    {"threshold", " cutoff cut-off decision-threshold "},
    {"replicates", " bootstrap n-bootstrap n-boot bootstraps n-resamples "},
    {"md", " markdown "},
    {"gpu", " card device "},
    {"gpu-memory", " memory vram gpu-mem mem "},
    {"cells", " n-cells num-cells n-samples samples "},
};

static void normalise(const char *name, char out[LONGEST_NAME])
{
    size_t used = 0;
    for (; *name && used + 1 < LONGEST_NAME; name++) {
        out[used++] = *name == '_' || *name == '.' ? '-' : (char)tolower((unsigned char)*name);
    }
    out[used] = '\0';
}

static const flim_flag_row *row_of(const flim_flag_table *table, const char *flag)
{
    for (int i = 0; i < table->n; i++) {
        if (strcmp(table->row[i].name, flag) == 0) {
            return &table->row[i];
        }
    }
    return NULL;
}

const flim_flag_row *flim_flag_meant(const flim_flag_table *table, const char *name)
{
    char word[LONGEST_NAME], between[LONGEST_NAME + 2];
    const char *names[MOST_ROWS];
    normalise(name, word);
    const flim_flag_row *row = row_of(table, word);
    snprintf(between, sizeof between, " %s ", word);
    for (size_t i = 0; !row && i < sizeof synonyms / sizeof synonyms[0]; i++) {
        row = strstr(synonyms[i].words, between) ? row_of(table, synonyms[i].flag) : NULL;
    }
    int n = 0;
    for (; !row && n < table->n && n < MOST_ROWS; n++) {
        names[n] = table->row[n].name;
    }
    const char *near = n ? flim_nearest(word, names, n) : NULL;
    return near ? row_of(table, near) : row;
}
