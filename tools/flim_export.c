/* flim_export MODEL... --onnx OUT: trained networks for other programs (flim/export.h). */
#include <stddef.h>
#include <stdio.h>

#include "common/tool.h"
#include "core/try.h"
#include "core/text.h"
#include "flim/export.h"

typedef struct options {
    char *onnx;
    bool from_counts, force, quiet;
    int64_t t, h, w;
} options;

#define AT(member) offsetof(options, member)
static const flim_flag_row rows[] = {
    {"Output", "onnx", FLIM_VALUE_TEXT, AT(onnx), "", "FILE", .help = "the ONNX file to write (operator set 17)",
     .writes = true},
    {NULL, "force", FLIM_VALUE_SWITCH, AT(force), "false", NULL, .help = "overwrite a file that flim_export has not made"},
    {NULL, "quiet", FLIM_VALUE_SWITCH, AT(quiet), "false", NULL, .help = "print warnings only"},
    {"Graph", "from-counts", FLIM_VALUE_SWITCH, AT(from_counts), "false", NULL,
     .help = "take photon counts (N,T,H,W) and masks (N,H,W) and prepare them as predict does; else the prepared input "
             "(N,2,T,H,W)"},
    {NULL, "bins", FLIM_VALUE_INTEGER, AT(t), "auto", "T",
     .help = "time bins of a cell, for weights that do not say it; height and width likewise", .allowed = ">= 8, <= 65536",
     .word = "auto", .word_value = 0},
    {NULL, "height", FLIM_VALUE_INTEGER, AT(h), "auto", "H", .help = "pixels of a cell in y", .allowed = ">= 3, <= 1024",
     .word = "auto", .word_value = 0},
    {NULL, "width", FLIM_VALUE_INTEGER, AT(w), "auto", "W", .help = "pixels of a cell in x", .allowed = ">= 3, <= 1024",
     .word = "auto", .word_value = 0},
};
static const flim_example examples[] = {
    {"flim_export runs/NAME --onnx model.onnx", "all finished folds of a run as one graph"},
    {"flim_export runs/NAME/fold_0/best.safetensors --onnx fold_0.onnx --from-counts",
     "one fold, which takes photon counts as they are"},
    {NULL, NULL},
};
static const flim_flag_table table = {
    "flim_export",
    "flim_export MODEL... --onnx OUT.onnx [flag]...",
    "Writes trained weights as an ONNX file. A MODEL is a run folder (all of its finished folds) or a .safetensors file;\n"
    "several become one graph that averages their probabilities as predict does.",
    rows,
    (int)(sizeof rows / sizeof rows[0]),
    .operand = "MODEL",
    .purpose = "trained networks as ONNX files",
    .examples = examples,
    .see_also = "train_cv(1), predict(1)"};

static flim_status export_models(void *read, const flim_string_list *models, console *screen, flim_error *err)
{
    const options *o = read;
    console_be_quiet(screen, o->quiet);
    const flim_log log = console_log(screen);
    if (models->n == 0 || !o->onnx[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "MODEL and --onnx are needed, for example flim_export runs/NAME --onnx model.onnx");
    }
    const flim_export_request request = {.model = (const char *const *)models->item,
                                         .n_models = models->n,
                                         .out = o->onnx,
                                         .from_counts = o->from_counts,
                                         .t = o->t,
                                         .h = o->h,
                                         .w = o->w,
                                         .force = o->force};
    flim_export_result made;
    FLIM_TRY(flim_export_onnx(&request, &log, &made, err));
    flim_log_line(&log, FLIM_LOG_INFO, "%s: %d model%s; %s (%d,%d,%d) of N cells -> logits, probabilities%s of %d classes",
                  o->onnx, made.models, flim_s(made.models),
                  !o->from_counts   ? "input of 2 x"
                  : made.takes_mask ? "counts and mask,"
                                    : "counts",
                  made.t, made.h, made.w, made.calibrated ? ", calibrated_probabilities" : "", made.classes);
    return FLIM_OK;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, export_models, argc, argv);
}
