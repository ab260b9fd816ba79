/* Settings: defaults, layers, includes, mistakes with file and line, --print-config that reads back the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/settings.h"
#include "core/alloc.h"
#include "flim/settings.h"
#include "formats/yaml.h"

/* ---- a folder of its own, the working directory of every test */

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *place)
{
    (void)about;
    (void)type;
    (void)place;
    return remove(path);
}

static int enter_folder(void **state)
{
    char name[] = "/tmp/flim_settings_XXXXXX";
    if (!mkdtemp(name) || chdir(name) != 0) {
        return -1;
    }
    *state = strdup(name);
    return *state ? 0 : -1;
}

static int leave_folder(void **state)
{
    int failed = chdir("/") != 0 || nftw(*state, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0;
    free(*state);
    return failed;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* ---- helpers */

/* Resolves a command line split at blanks; what it asks for instead of a run goes to `out` (NULL: it must not). */
static flim_status parse_to(FILE *out, const char *line, flim_settings *s, flim_string_list *keys, flim_error *err)
{
    char text[2048], *argv[192] = {"train_cv"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    bool go;
    assert_int_equal(flim_settings_init(s, err), FLIM_OK);
    flim_status status = flim_settings_parse(s, argc, argv, keys, out, &go, err);
    assert_int_equal(go, status == FLIM_OK && !out);
    return status;
}

static flim_status parse(const char *line, flim_settings *s, flim_error *err)
{
    return parse_to(NULL, line, s, NULL, err);
}

static flim_settings expect_parsed(const char *line)
{
    flim_settings s;
    flim_error err = {0};
    if (parse(line, &s, &err) != FLIM_OK) {
        fail_msg("'%s': %s", line, err.text);
    }
    return s;
}

static char *printed(const flim_settings *s)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    assert_int_equal(flim_settings_print(s, out, NULL), FLIM_OK);
    fclose(out);
    return text;
}

static void count_difference(void *context, const flim_flag_row *row, const char *value_a, const char *value_b)
{
    char *text = context, key[FLIM_KEY_MAX];
    size_t used = strlen(text);
    flim_flag_key(row, key, sizeof key);
    snprintf(text + used, 1024 - used, "%s %s %s;", key, value_a, value_b);
}

static void expect_equal(const flim_settings *a, const flim_settings *b)
{
    char differences[1024] = "";
    flim_settings_compare(a, b, count_difference, differences);
    assert_string_equal(differences, "");
}

/* ---- tests */

static void defaults_are_those_of_the_specification(void **state)
{
    (void)state;
    flim_settings s = expect_parsed("");
    assert_int_equal(s.data.n, 1);
    assert_string_equal(s.data.item[0], "data/flim.h5");
    assert_string_equal(s.axes, "NTYX");
    assert_true(!s.mask_counts && s.scan && s.workers == 8 && s.prefetch == 4 && s.folds == 5);
    assert_int_equal(s.cv, FLIM_SPLIT_AUTO);
    assert_int_equal(s.holdout_group.n, 0);
    assert_true(s.val_fraction == 0.15 && s.fold == -1 && s.dropout == 0.25 && s.block_dropout == 0);
    assert_true(s.schedule == FLIM_LR_SCHEDULE_CONSTANT && s.warmup_epochs == 0 && s.focal_gamma == 0 && s.ema == 0.98);
    assert_true(s.recalibrate_bn && s.sampler_repeats == 4);
    assert_string_equal(s.class_weights, "none");
    assert_int_equal(s.monitor, FLIM_MONITOR_VAL_LOSS);
    assert_int_equal(s.preset, FLIM_PRESET_BASE);
    assert_true(s.epochs == 75 && s.batch == 64 && s.eval_batch == 0 && s.accumulate == 1);
    assert_true(s.lr == 1e-3 && s.weight_decay == 1e-3 && s.clip == 35 && s.label_smoothing == 0.05);
    assert_true(s.patience == 20 && s.seed == 42 && s.benchmark && !s.deterministic);
    assert_int_equal(s.sampler, FLIM_SAMPLER_BALANCED);
    assert_true(s.augment.n == 1 && strcmp(s.augment.item[0], "auto") == 0);
    assert_string_equal(s.device, "auto");
    assert_int_equal(s.precision, FLIM_PRECISION_AUTO);
    assert_true(s.cache == FLIM_CACHE_AUTO && s.threshold_for == FLIM_OBJECTIVE_BALANCED_ACCURACY);
    assert_true(s.lr_scale == FLIM_LR_SCALE_NONE && s.checkpoint_activations == FLIM_RECOMPUTE_NONE);
    assert_int_equal(s.on_oom, FLIM_ON_OOM_STOP);
    assert_true(!s.resume && !s.quiet && !s.log_json && !s.dry_run && !s.verbose);
    assert_true(!s.out[0] && !s.splits[0] && !s.init_weights[0]);
    flim_settings_free(&s);
}

static void layers_go_by_their_strength(void **state)
{
    (void)state;
    put("flimcv.yaml", "batch: 10\nepochs: 11\nlr: 0.5\nfolds: 3\n");
    put("other.yaml", "batch: 20\ndata: [x.h5, y.h5]\nholdout_group: D9\n");
    flim_settings s = expect_parsed("");
    assert_true(s.batch == 10 && s.epochs == 11 && s.lr == 0.5 && s.folds == 3 && s.default_config);
    flim_settings_free(&s);
    s = expect_parsed("--set epochs=12 --batch 30 --set batch=31");
    assert_true(s.batch == 30 && s.epochs == 12 && s.lr == 0.5);
    flim_settings_free(&s);
    put("flimcv.yaml", "batch: 10\nfolds: 1\n"); /* is no matter of a run that is resumed, nor is what it alone can tell */
    s = expect_parsed("--out run --resume --fold 6");
    assert_true(s.batch == 64 && s.resume && s.fold == 6 && !s.default_config);
    flim_settings_free(&s);
    put("flimcv.yaml", "batch: 10\nepochs: 11\nlr: 0.5\nfolds: 3\n");
    s = expect_parsed("--config other.yaml"); /* ./flimcv.yaml is not read then */
    assert_true(s.batch == 20 && s.epochs == 75 && s.data.n == 2 && s.holdout_group.n == 1 && !s.default_config);
    flim_settings_free(&s);
    s = expect_parsed("--data a.h5 --config=other.yaml --data=b.h5 --data c.h5");
    assert_int_equal(s.data.n, 3); /* they replace the config's */
    assert_string_equal(s.data.item[2], "c.h5");
    flim_settings_free(&s);
    s = expect_parsed("--config other.yaml --set data=p.h5 --set data=q.h5 --set holdout_group=[]");
    assert_int_equal(s.data.n, 2);
    assert_string_equal(s.data.item[1], "q.h5");
    assert_int_equal(s.holdout_group.n, 0);
    flim_settings_free(&s);
    s = expect_parsed("--set holdout_group=[D1,'D,2'] --holdout-group E1");
    assert_int_equal(s.holdout_group.n, 1);
    flim_settings_free(&s);
    s = expect_parsed("--set holdout_group=[D1,'D,2']");
    assert_int_equal(s.holdout_group.n, 2);
    assert_string_equal(s.holdout_group.item[1], "D,2");
    flim_settings_free(&s);
    unlink("flimcv.yaml");
}

static void every_flag_sets_its_field(void **state)
{
    (void)state;
    flim_settings s = expect_parsed(
        "--axes TYXN --mask-counts --no-scan --workers 1 --prefetch 64 --folds 7 --cv leave-one-group-out --holdout-group A "
        "--holdout-group B --val-fraction 0 --fold 6 --splits s.json --splits-by name --preset xlarge --dropout 0 "
        "--init-weights w --epochs 1 "
        "--block-dropout 0.5 --schedule restarts --warmup-epochs 0 --restart-epochs 3 --restart-factor 1 "
        "--plateau-factor 0.5 --plateau-patience 0 --class-weights 0.5,2 --focal-gamma 2 --ema 0.99 --recalibrate-bn "
        "--sampler-repeats 7 --batch 1 --eval-batch 2 --accumulate 3 --lr 1e-9 --weight-decay 0 --clip 0 --label-smoothing 0 "
        "--patience 0 "
        "--sampler group-balanced --seed 18446744073709551615 --device cuda:12 --precision fp16 --no-benchmark "
        "--augment flim --augment shift:0.5 --mixup counts --mixup-alpha 0.2 --mixup-probability 0.3 --mixup-share batch "
        "--mixup-partner group "
        "--deterministic "
        "--out o --resume --dry-run --quiet --verbose --log-json");
    assert_string_equal(s.axes, "TYXN");
    assert_true(s.mask_counts && !s.scan && s.workers == 1 && s.prefetch == 64 && s.folds == 7);
    assert_int_equal(s.cv, FLIM_SPLIT_LEAVE_ONE_GROUP_OUT);
    assert_int_equal(s.holdout_group.n, 2);
    assert_true(s.val_fraction == 0 && s.fold == 6 && s.dropout == 0 && s.block_dropout == 0.5 && s.epochs == 1 &&
                s.batch == 1 && s.eval_batch == 2);
    assert_true(s.schedule == FLIM_LR_SCHEDULE_RESTARTS && s.restart_epochs == 3 && s.restart_factor == 1);
    assert_true(s.plateau_factor == 0.5 && s.plateau_patience == 0 && s.focal_gamma == 2 && s.ema == 0.99);
    assert_true(s.recalibrate_bn && s.sampler_repeats == 7);
    assert_string_equal(s.class_weights, "0.5,2");
    assert_string_equal(s.splits, "s.json");
    assert_int_equal(s.splits_by, FLIM_SPLITS_BY_NAME);
    assert_int_equal(s.preset, FLIM_PRESET_XLARGE);
    assert_string_equal(s.init_weights, "w");
    assert_true(s.accumulate == 3 && s.lr == 1e-9 && s.weight_decay == 0 && s.clip == 0 && s.label_smoothing == 0);
    assert_true(s.patience == 0 && s.seed == UINT64_MAX && !s.benchmark && s.deterministic);
    assert_int_equal(s.sampler, FLIM_SAMPLER_GROUP_BALANCED);
    assert_int_equal(s.augment.n, 2);
    assert_string_equal(s.augment.item[1], "shift:0.5");
    assert_true(s.mixup == FLIM_MIXUP_COUNTS && s.mixup_alpha == 0.2 && s.mixup_probability == 0.3);
    assert_true(s.mixup_share == FLIM_MIXUP_SHARE_BATCH && s.mixup_partner == FLIM_MIXUP_PARTNER_GROUP);
    assert_string_equal(s.device, "cuda:12");
    assert_int_equal(s.precision, FLIM_PRECISION_FP16);
    assert_string_equal(s.out, "o");
    assert_true(s.resume && s.dry_run && s.quiet && s.verbose && s.log_json);
    flim_settings_free(&s);
    s = expect_parsed("--benchmark --no-deterministic --no-mask-counts --scan --no-resume --fold all --eval-batch batch "
                      "--batch auto");
    assert_true(s.batch == 0);
    assert_true(s.benchmark && !s.deterministic && !s.mask_counts && s.scan && !s.resume && s.fold == -1 && !s.eval_batch);
    flim_settings_free(&s);
}

static void devices_are_told_by_their_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        flim_device_kind kind;
        int index;
    } good[] = {{"auto", FLIM_DEVICE_AUTO, 0},   {"cpu", FLIM_DEVICE_CPU, 0},       {"cuda", FLIM_DEVICE_CUDA, 0},
                {"cuda:0", FLIM_DEVICE_CUDA, 0}, {"cuda:12", FLIM_DEVICE_CUDA, 12}, {"cuda:1023", FLIM_DEVICE_CUDA, 1023}};
    static const char *const bad[] = {"", "Cpu", "cuda:", "cuda: 1", "cuda:+1", "cuda:1 ", "cuda1", "auto:1", "cp"};
    flim_device_kind kind;
    int index;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(flim_parse_device(good[i].text, &kind, &index));
        assert_true(kind == good[i].kind && index == good[i].index);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(flim_parse_device(bad[i], &kind, &index));
    }
}

/* --amp is precision: amp, and the last of the two counts. */
static void amp_is_a_precision(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        flim_precision want;
    } cases[] = {{"--amp", FLIM_PRECISION_AMP},
                 {"--precision amp", FLIM_PRECISION_AMP},
                 {"--set precision=amp", FLIM_PRECISION_AMP},
                 {"--precision fp32 --amp", FLIM_PRECISION_AMP},
                 {"--amp --precision fp32", FLIM_PRECISION_FP32},
                 {"--amp --set precision=fp32", FLIM_PRECISION_AMP}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_settings s = expect_parsed(cases[i].line);
        assert_int_equal(s.precision, cases[i].want);
        flim_settings_free(&s);
    }
}

static void mistakes_on_the_command_line(void **state)
{
    (void)state;
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"--bacth 3", "unknown flag --bacth (did you mean --batch? train_cv --help lists all)"},
        {"--val-frac 0.1", "unknown flag --val-frac (did you mean --val-fraction?"},
        {"--val_fraction 0.1", "unknown flag --val_fraction (did you mean --val-fraction?"},
        {"--learning-rate 1", "unknown flag --learning-rate (did you mean --lr?"},
        {"--learning_rate=1", "unknown flag --learning_rate (did you mean --lr?"},
        {"--batch-size 1", "unknown flag --batch-size (did you mean --batch?"},
        {"--num-workers 1", "unknown flag --num-workers (did you mean --workers?"},
        {"--num_workers 1", "unknown flag --num_workers (did you mean --workers?"},
        {"--amp=bf16", "--amp takes no value, found 'bf16' (it means --precision amp)"},
        {"--use_amp", "unknown flag --use_amp (did you mean --precision?"},
        {"--gpus 1", "unknown flag --gpus (did you mean --devices?"},
        {"--backbone x", "unknown flag --backbone (did you mean --pretrained?"},
        {"--manifest x", "unknown flag --manifest (did you mean --data?"},
        {"--split x", "unknown flag --split (did you mean --splits?"},
        {"--random-state 1", "unknown flag --random-state (did you mean --seed?"},
        {"--early-stopping 1", "unknown flag --early-stopping (did you mean --patience?"},
        {"--n_splits 1", "unknown flag --n_splits (did you mean --folds?"},
        {"--output_dir x", "unknown flag --output_dir (did you mean --out?"},
        {"--gradient-accumulation-steps 2", "unknown flag --gradient-accumulation-steps (did you mean --accumulate?"},
        {"--no-amp", "unknown flag --no-amp (did you mean --precision?"},
        {"--no-cudnn-benchmark", "unknown flag --no-cudnn-benchmark (did you mean --no-benchmark?"},
        {"--xyzzy 1", "unknown flag --xyzzy (train_cv --help lists all)"},
        {"--set learning_rate=1", "--set: unknown key 'learning_rate' (did you mean 'lr'?)"},
        {"--set random_state=1", "--set: unknown key 'random_state' (did you mean 'seed'?)"},
        {"--set xyzzy=1", "--set: unknown key 'xyzzy'; train_cv --print-config"},
        {"--data ~bob/x.h5", "--data: '~bob/x.h5': only ~/ means a home folder"},
        {"--conf x.yaml", "unknown flag --conf (did you mean --config?"},
        {"data.h5", "unexpected argument 'data.h5' (did you mean --data data.h5? train_cv --help lists all)"},
        {"--batch 0", "--batch: 0 is out of range, must be >= 1"},
        {"--batch aut", "--batch: 'aut' is not a whole number"},
        {"--eval-batch 0", "--eval-batch: 0 is out of range, must be >= 1, <= 1048576 or batch"},
        {"--folds 1", "--folds: 1 is out of range, must be >= 2"},
        {"--fold 5", "fold 5 does not exist: folds = 5, so they are 0..4 (for the number of folds use --folds 5)"},
        {"--lr 0", "--lr: 0 is out of range, must be > 0"},
        {"--lr nan", "--lr: 'nan' is not a finite number"},
        {"--dropout 1", "--dropout: 1 is out of range, must be >= 0, < 1"},
        {"--ema 1", "--ema: 1 is out of range, must be >= 0, < 1"},
        {"--focal-gamma -1", "--focal-gamma: -1 is out of range, must be >= 0"},
        {"--plateau-factor 1", "--plateau-factor: 1 is out of range, must be > 0, < 1"},
        {"--class-weights balance", "--class-weights: 'balance'"},
        {"--class-weights 1,", "--class-weights: '1,'"},
        {"--class-weights 1,0", "--class-weights: '1,0'"},
        {"--class-weights 1,-2", "--class-weights: '1,-2'"},
        {"--class-weights 1,nan", "--class-weights: '1,nan'"},
        {"--class-weights 1,,2", "--class-weights: '1,,2'"},
        {"--splits-by name", "splits_by name says how a splits file is read, and none is given"},
        {"--splits-by names --splits x", "--splits-by: 'names' is not one of auto, index, name (did you mean 'name'?)"},
        {"--warmup-epochs 3 --epochs 3", "warmup_epochs: 3 of 3 epochs; must be fewer than epochs"},
        {"--schedule plateau --val-fraction 0", "schedule plateau needs a validation set"},
        {"--block-dropout 1", "--block-dropout: 1 is out of range, must be >= 0, < 1"},
        {"--val-fraction 1", "--val-fraction: 1 is out of range"},
        {"--label-smoothing 1", "--label-smoothing: 1 is out of range"},
        {"--accumulate 0", "--accumulate: 0 is out of range"},
        {"--patience -1", "--patience: -1 is out of range, must be >= 0"},
        {"--workers 257", "--workers: 257 is out of range, must be >= 1, <= 256"},
        {"--prefetch 65", "--prefetch: 65 is out of range, must be >= 1, <= 64"},
        {"--seed 18446744073709551616", "--seed: '18446744073709551616' is not a whole number from 0 to 2^64-1"},
        {"--cv grup",
         "--cv: 'grup' is not one of auto, stratified, group, stratified-group, leave-one-group-out (did you mean 'group'?)"},
        {"--preset huge", "--preset: 'huge' is not one of nano, tiny, small, base, large, xlarge, giant"},
        {"--preset bas",
         "--preset: 'bas' is not one of nano, tiny, small, base, large, xlarge, giant (did you mean 'base'?)"},
        {"--cache devise", "--cache: 'devise' is not one of none, host, auto, device (did you mean 'device'?)"},
        {"--set cv=", "--set cv: '' is not one of auto, stratified"},
        {"--augment thim", "augment: 'thim' is not known (did you mean 'thin'?)"},
        {"--augment none --augment flim", "augment: none must be the only item"},
        {"--sampler none", "--sampler: 'none' is not one of natural"},
        {"--monitor auc", "--monitor: 'auc' is not one of val_loss, roc_auc, balanced_accuracy, f1 (did you mean"},
        {"--precision fp8", "--precision: 'fp8' is not one of auto, fp32"},
        {"--device cuda:", "--device: 'cuda:' is not auto, cpu, cuda or cuda:N"},
        {"--device gpu", "--device: 'gpu' is not auto, cpu, cuda or cuda:N"},
        {"--device cuda:1024", "--device: 'cuda:1024' is not"},
        {"--device cuda:-1", "--device: 'cuda:-1' is not"},
        {"--device cpu:0", "--device: 'cpu:0' is not"},
        {"--device automatic", "--device: 'automatic' is not"},
        {"--set device=", "--set device: '' is not auto"},
        {"--device cuda:1x", "--device: 'cuda:1x' is not"},
        {"--axes NTYY", "--axes: 'NTYY' is not the letters N, T, Y (or H) and X (or W) in some order"},
        {"--axes NTYXX", "--axes: 'NTYXX' is not"},
        {"--set batch", "--set: 'batch' is not KEY=VALUE"},
        {"--set =3", "--set: '=3' is not KEY=VALUE"},
        {"--set batsh=3", "--set: unknown key 'batsh' (did you mean 'batch'?)"},
        {"--set val-fraction=3", "--set: unknown key 'val-fraction' (did you mean 'val_fraction'?)"},
        {"--set batch=x", "--set batch: 'x' is not a whole number"},
        {"--set data=[a", "--set data: '[a' is not a list as in [a, b]"},
        {"--set benchmark=perhaps", "--set benchmark: 'perhaps' is neither true nor false"},
        {"--config a.yaml --config b.yaml", "--config is given twice"},
        {"--resume", "--resume needs --out DIR"},
        {"--resume=1 --out x", "--resume takes no value"},
        {"--val-fraction 0 --monitor f1", "monitor f1 needs a validation set, but val_fraction is 0"},
        {"--set data=[]", "data: the list of files is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_settings s;
        flim_error err = {0};
        flim_status status = parse(cases[i].line, &s, &err);
        if (status != FLIM_ERROR_USAGE || strncmp(err.text, cases[i].want, strlen(cases[i].want)) != 0) {
            fail_msg("'%s': status %d, '%s', expected '%s'", cases[i].line, (int)status, err.text, cases[i].want);
        }
        flim_settings_free(&s);
    }
}

static void mistakes_in_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"batch: 1\n\nepoch: 3\n", "c.yaml:3: unknown key 'epoch' (did you mean 'epochs'?)"},
        {"learning_rate: 1\n", "c.yaml:1: unknown key 'learning_rate' (did you mean 'lr'?)"},
        {"early_stopping: 1\n", "c.yaml:1: unknown key 'early_stopping' (did you mean 'patience'?)"},
        {"xyzzy: 1\n", "c.yaml:1: unknown key 'xyzzy'; "},
        {"training:\n  batch_size: 32\n  lr: 1\n", "c.yaml:1: 'training' is a map, but a config is one flat list of keys: "
                                                   "write 'batch: ...' at the left margin for its 'batch_size'"},
        {"a: 1\nmodel: {name: {x: [1, {y: 2}]}, lr: 2}\n", "c.yaml:2: 'model' is a map, but a config"},
        {"include: {a: b}\n", "c.yaml:1: 'include' is a map"},
        {"stages: {a: b}\n", "c.yaml:1: 'stages' is a map"},
        {"x: {}\n", "c.yaml:1: 'x' is a map, but a config is one flat list of keys: write 'KEY: ...' at the left margin"},
        {"out: ~bob/x\n", "c.yaml:1: out: '~bob/x': only ~/ means a home folder"},
        {"includes: x\n", "c.yaml:1: unknown key 'includes' (did you mean 'include'?)"},
        {"# c\nbatch: many\n", "c.yaml:2: batch: 'many' is not a whole number"},
        {"batch: 0\n", "c.yaml:1: batch: 0 is out of range"},
        {"batch: 64.0\n", "c.yaml:1: batch: '64.0' is not a whole number"},
        {"batch:\n", "c.yaml:1: batch: no value"},
        {"batch: ~\n", "c.yaml:1: batch: no value"},
        {"batch: [1, 2]\n", "c.yaml:1: batch: one value is expected, found a list"},
        {"batch:\n  size: 3\n", "c.yaml:1: 'batch' is a map; expected 'batch: value' or a list"},
        {"batch: 1\nlr: 1\nbatch: 2\n", "c.yaml:3: the key 'batch' is already set in line 1"},
        {"data: [[a]]\n", "c.yaml:1: the list 'data' may only have texts"},
        {"data:\n  - a: b\n", "c.yaml:2: the list 'data' may only have texts"},
        {"data: ['']\n", "c.yaml:1: data: an empty name"},
        {"data: []\n", "data: the list of files is empty"},
        {"? [a, b]\n: c\n", "c.yaml:1: a key must be a word"},
        {"- batch\n", "c.yaml:1: expected lines of 'key: value'"},
        {"batch\n", "c.yaml:1: expected lines of 'key: value'"},
        {"batch 64\nlr: 3\n", "c.yaml:1: expected lines of 'key: value'"},
        {"epochs: 3\nbatch 64\nlr: 3\n",
         "c.yaml:3: not valid YAML: while scanning a simple key, could not find expected ':'"},
        {"lr: &x 3\nclip: *x\n", "c.yaml:1: the anchor or alias 'x'"},
        {"out: *x\n", "c.yaml:1: the anchor or alias 'x'"},
        {"data: &x [a]\n", "c.yaml:1: the anchor or alias 'x'"},
        {"seed: !!int 3\n", "c.yaml:1: the tag 'tag:yaml.org,2002:int'"},
        {"batch: 3\n---\nlr: 3\n", "c.yaml:2: a second document"},
        {"batch: 3\n\tlr: 3\n", "c.yaml:2: a tab: YAML wants blanks there"},
        {"data:\n\t- a\n", "c.yaml:2: a tab: YAML wants blanks there"},
        {"lr: 1\nout: \xe4\n", "c.yaml:2: byte 0xe4 is not UTF-8 text"},
        {"\xff\xfe"
         "b",
         "c.yaml:1: byte 0xff is not UTF-8 text"},
        {"out: \"a\\0b\"\n", "c.yaml:1: a zero byte in a text"},
        {"out: a\x01\n", "c.yaml:1: not valid YAML: control characters are not allowed"},
        {"out: \"open\n", "c.yaml:2: not valid YAML"},
        {"cv:\n", "c.yaml:1: cv: no value"},
        {"cv: stratifed\n", "c.yaml:1: cv: 'stratifed' is not one of"},
        {"include: none.yaml\n", "c.yaml:1: include: there is no file none.yaml"},
        {"include: ['']\n", "c.yaml:1: include: an empty name"},
        {"<<: x\n", "c.yaml:1: unknown key '<<'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_settings s;
        flim_error err = {0};
        put("c.yaml", cases[i].text);
        flim_status status = parse("--config c.yaml", &s, &err);
        if (status != FLIM_ERROR_USAGE || strncmp(err.text, cases[i].want, strlen(cases[i].want)) != 0) {
            fail_msg("'%s': status %d, '%s', expected '%s'", cases[i].text, (int)status, err.text, cases[i].want);
        }
        flim_settings_free(&s);
    }
    static const struct {
        const char *path, *want;
    } files[] = {{"no.yaml", "cannot read no.yaml: No such file"}, {".", "cannot read .: it is not a regular file"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        flim_settings s;
        flim_error err = {0};
        assert_int_equal(flim_settings_init(&s, &err), FLIM_OK);
        assert_int_equal(flim_settings_read(&s, files[i].path, &err), FLIM_ERROR_USAGE);
        assert_memory_equal(err.text, files[i].want, strlen(files[i].want));
        flim_settings_free(&s);
    }
}

static void yaml_as_people_write_it(void **state)
{
    (void)state;
    put("c.yaml",
        "\xef\xbb\xbf# a comment\n---\nbatch: '32'   # quoted\nlr: 1e-3\nseed: 7\nbenchmark: No\nmask_counts: True\n"
        "data: one.h5\nholdout_group:\n  - \"D 1\"\n  - 7\n  - \xc3\xa9\nout: \"runs/\\u03b2\"\ninit_weights:\n"
        "splits: ~\nval_fraction: .2\nfold: all\r\n...\n");
    flim_settings s = expect_parsed("--config c.yaml");
    assert_true(s.batch == 32 && s.lr == 1e-3 && s.seed == 7 && !s.benchmark && s.mask_counts && s.val_fraction == 0.2);
    assert_int_equal(s.data.n, 1);
    assert_int_equal(s.holdout_group.n, 3);
    assert_string_equal(s.holdout_group.item[0], "D 1");
    assert_string_equal(s.holdout_group.item[1], "7");
    assert_string_equal(s.holdout_group.item[2], "\xc3\xa9");
    assert_string_equal(s.out, "runs/\xce\xb2");
    assert_true(!s.init_weights[0] && !s.splits[0] && s.fold == -1);
    flim_settings_free(&s);
    static const char *const empty[] = {"", "# nothing\n", "---\n", "{}\n", "null\n"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        put("c.yaml", empty[i]);
        s = expect_parsed("--config c.yaml");
        assert_int_equal(s.batch, 64);
        flim_settings_free(&s);
    }
    put("c.yaml", "holdout_group:\n");
    s = expect_parsed("--config c.yaml --quiet");
    assert_int_equal(s.holdout_group.n, 0);
    flim_settings_free(&s);
}

static void includes(void **state)
{
    (void)state;
    assert_int_equal(mkdir("conf", 0777), 0);
    put("conf/base.yaml", "batch: 8\nepochs: 9\nlr: 0.25\ndata: [a.h5, b.h5]\n");
    put("conf/more.yaml", "lr: 0.5\nclip: 3\n");
    put("conf/top.yaml", "epochs: 10\ninclude: [base.yaml, more.yaml]\ndata: c.h5\n"); /* weaker, wherever it stands */
    put("link.yaml", "include: conf/top.yaml\nclip: 4\n");
    flim_settings s = expect_parsed("--config link.yaml");
    assert_true(s.batch == 8 && s.epochs == 10 && s.lr == 0.5 && s.clip == 4 && s.data.n == 1);
    flim_settings_free(&s);

    static const struct {
        const char *a, *b, *want;
    } cases[] = {
        {"include: a.yaml\n", "", "a.yaml: circular include: a.yaml -> a.yaml"},
        {"include: b.yaml\n", "lr: 1\ninclude: [../a.yaml]\n", NULL},
        {"include: conf/b.yaml\n", "lr: 1\ninclude: ../a.yaml\n",
         "conf/b.yaml: circular include: a.yaml -> conf/b.yaml -> conf/../a.yaml"},
        {"include: conf/b.yaml\n", "\nbatsh: 1\n", "conf/b.yaml:2: unknown key 'batsh' (did you mean 'batch'?)"},
        {"lr: 1\ninclude:\n  - conf/base.yaml\n  - conf/none.yaml\n", "",
         "a.yaml:2: include: there is no file conf/none.yaml"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("a.yaml", cases[i].a);
        put("conf/b.yaml", cases[i].b);
        if (!cases[i].want) {
            continue;
        }
        flim_error err = {0};
        assert_int_not_equal(parse("--config a.yaml", &s, &err), FLIM_OK);
        if (strncmp(err.text, cases[i].want, strlen(cases[i].want)) != 0) {
            fail_msg("case %zu: '%s', expected '%s'", i, err.text, cases[i].want);
        }
        flim_settings_free(&s);
    }
    /* Ten that include ten each, eight deep, would be 10^8 files. */
    for (int depth = 0; depth < 9; depth++) {
        char name[32], text[512] = "include:\n";
        for (int i = 0; depth < 8 && i < 10; i++) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "  - bomb%d.yaml\n", depth + 1);
        }
        snprintf(name, sizeof name, "bomb%d.yaml", depth);
        put(name, depth < 8 ? text : "lr: 1\n");
    }
    flim_error bomb = {0};
    assert_int_equal(parse("--config bomb0.yaml", &s, &bomb), FLIM_ERROR_USAGE);
    assert_non_null(strstr(bomb.text, "more than 256 files are included"));
    flim_settings_free(&s);
    /* ~/ is the home folder, for what is a path. */
    char home[4096], before[4096] = "";
    snprintf(before, sizeof before, "%s", getenv("HOME") ? getenv("HOME") : "");
    assert_non_null(getcwd(home, sizeof home));
    assert_int_equal(setenv("HOME", home, 1), 0);
    put("home.yaml", "lr: 0.125\n");
    put("tilde.yaml", "include: ~/home.yaml\nout: ~/runs/x\ndata: [~/a.h5, b~.h5]\nholdout_group: ['~g']\n");
    s = expect_parsed("--config tilde.yaml --splits ~/s.json");
    char want[4200];
    snprintf(want, sizeof want, "%s/runs/x", home);
    assert_string_equal(s.out, want);
    snprintf(want, sizeof want, "%s/a.h5", home);
    assert_string_equal(s.data.item[0], want);
    assert_string_equal(s.data.item[1], "b~.h5");
    snprintf(want, sizeof want, "%s/s.json", home);
    assert_string_equal(s.splits, want);
    assert_string_equal(s.holdout_group.item[0], "~g"); /* no path */
    assert_true(s.lr == 0.125);
    flim_settings_free(&s);
    setenv("HOME", before, 1);

    for (int i = 0; i < 40; i++) { /* a chain without a circle ends, too */
        char name[32], text[64];
        snprintf(name, sizeof name, "chain%d.yaml", i);
        snprintf(text, sizeof text, "include: chain%d.yaml\n", i + 1);
        put(name, text);
    }
    flim_error err = {0};
    assert_int_equal(parse("--config chain0.yaml", &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "more than 32 configs include one another"));
    flim_settings_free(&s);
}

static void actions_and_explicit_keys(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *want; /* what is written; "": nothing, and it runs */
        const char *keys;
    } cases[] = {
        {"", "", ""},
        {"--help", "Usage: train_cv [flag]...\n", ""},
        {"-h --oops", "Usage: train_cv [flag]...\n", ""},
        {"--batch 0 --version", "train_cv (flimcv) ", ""},
        {"--print-config --lr 1 --set batch=3 --no-scan", "# Settings of train_cv: ", "scan batch lr "},
        {"--print-config --no-print-config", "", ""},
        {"--data x --data y --set data=z --set folds=5", "", "data folds "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_settings s;
        flim_error err = {0};
        flim_string_list keys = {0};
        char *text = NULL;
        size_t length = 0;
        FILE *out = cases[i].want[0] ? open_memstream(&text, &length) : NULL;
        assert_int_equal(parse_to(out, cases[i].line, &s, &keys, &err), FLIM_OK);
        if (out) {
            assert_int_equal(fclose(out), 0);
            assert_memory_equal(text, cases[i].want, strlen(cases[i].want));
        }
        free(text);
        char all[256] = "";
        for (int k = 0; k < keys.n; k++) {
            size_t used = strlen(all);
            snprintf(all + used, sizeof all - used, "%s ", keys.item[k]);
        }
        assert_string_equal(all, cases[i].keys);
        flim_string_list_free(&keys);
        flim_settings_free(&s);
    }
}

static void the_printed_config_reads_back_the_same(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "--data /a/b.h5 --data x.h5 --holdout-group 7 --holdout-group D:1 --holdout-group yes --lr 3e-05 --clip 0.1 --fold 3",
        "--set out=[x] --set splits=#no --set init_weights=~ --holdout-group - --holdout-group null --holdout-group 1e3",
        "--lr 0.30000000000000004 --weight-decay 1e-300 --seed 18446744073709551615 --no-benchmark --eval-batch 17",
        "--holdout-group \xce\xb2\"'\\: --holdout-group a\xe2\x80\xa8"
        "b --holdout-group \xc2\x85\x01\x7f --holdout-group *a&b",
        "--holdout-group \xef\xbb\xbf --holdout-group \xf0\x9f\x94\xac --holdout-group {a} --holdout-group a:b "
        "--holdout-group a:",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        flim_settings a = expect_parsed(lines[i]);
        flim_error err = {0};
        assert_int_equal(flim_settings_write(&a, "config.yaml", &err), FLIM_OK);
        flim_settings b;
        assert_int_equal(flim_settings_init(&b, &err), FLIM_OK);
        if (flim_settings_read(&b, "config.yaml", &err) != FLIM_OK) {
            fail_msg("'%s': %s", lines[i], err.text);
        }
        expect_equal(&a, &b);
        assert_true(a.lr == b.lr && a.weight_decay == b.weight_decay);
        char *text_a = printed(&a), *text_b = printed(&b);
        assert_string_equal(text_a, text_b);
        free(text_a);
        free(text_b);
        flim_settings_free(&a);
        flim_settings_free(&b);
    }
    /* Texts with blanks and line ends, which parse() cannot pass. */
    static const char *const texts[] = {" a ", "a\nb", "a # b", "a: b", "\t",  "a, b",      "12:30:45",
                                        "-",   "?",    "%x",    "@x",   "`x`", "2026-01-01"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        flim_settings a = expect_parsed(""), b = expect_parsed("");
        flim_error err = {0};
        assert_int_equal(flim_settings_set(&a, "out", texts[i], &err), FLIM_OK);
        assert_int_equal(flim_settings_write(&a, "config.yaml", &err), FLIM_OK);
        assert_int_equal(flim_settings_read(&b, "config.yaml", &err), FLIM_OK);
        assert_string_equal(b.out, texts[i]);
        flim_settings_free(&a);
        flim_settings_free(&b);
    }
    flim_settings s = expect_parsed("");
    flim_error err = {0};
    assert_int_equal(flim_settings_write(&s, "none/config.yaml", &err), FLIM_ERROR_WRITE);
    FILE *full = fopen("/dev/full", "wb");
    if (full) {
        assert_int_equal(flim_settings_print(&s, full, &err), FLIM_ERROR_WRITE);
        fclose(full);
    }
    flim_settings_free(&s);
}

static void the_printed_config_is_as_documented(void **state)
{
    (void)state;
    flim_settings s = expect_parsed("--lr 1e-5");
    char *text = printed(&s);
    static const char *const want[] = {
        "# Settings of train_cv: read with train_cv --config FILE\n\n# Data\ndata:\n  - data/flim.h5\naxes: NTYX\n",
        "\n\n# Cross-validation\nfolds: 5\ncv: auto\nholdout_group: []\nval_fraction: 0.15\n",
        "\nfold: all\nsplits: \"\"\n",
        "\neval_batch: batch\n",
        "\nlr: 1.0e-05\n",
        "\nbenchmark: true\n",
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        if (!strstr(text, want[i])) {
            fail_msg("no '%s' in\n%s", want[i], text);
        }
    }
    free(text);
    flim_settings_free(&s);
}

static void comparison_names_keys_and_values(void **state)
{
    (void)state;
    flim_settings a = expect_parsed("--holdout-group x,y --lr 1"),
                  b = expect_parsed("--holdout-group x --holdout-group y --batch 3");
    char text[1024] = "";
    flim_settings_compare(&a, &b, count_difference, text);
    assert_string_equal(text, "holdout_group [x,y] [x, y];batch 64 3;lr 1 0.001;");
    flim_settings_free(&a);
    flim_settings_free(&b);
    a = expect_parsed("");
    b = expect_parsed("");
    flim_error err = {0};
    assert_int_equal(flim_settings_set(&a, "holdout_group", "x, y", &err), FLIM_OK);
    assert_int_equal(flim_settings_set(&b, "holdout_group", "[x, y]", &err), FLIM_OK);
    text[0] = '\0';
    flim_settings_compare(&a, &b, count_difference, text);
    assert_string_equal(text, "holdout_group [x, y] [x, y];");
    flim_settings_free(&a);
    flim_settings_free(&b);
}

static void one_key_can_be_set(void **state)
{
    (void)state;
    flim_settings s = expect_parsed("");
    flim_error err = {0};
    assert_int_equal(flim_settings_set(&s, "val_fraction", "0.2", &err), FLIM_OK);
    assert_true(s.val_fraction == 0.2);
    assert_int_equal(flim_settings_set(&s, "data", "x.h5", &err), FLIM_OK);
    assert_int_equal(s.data.n, 1);
    assert_string_equal(s.data.item[0], "x.h5");
    assert_int_equal(flim_settings_set(&s, "include", "x", &err), FLIM_ERROR_USAGE);
    assert_int_equal(flim_settings_set(&s, "folds", "1", &err), FLIM_ERROR_USAGE);
    assert_int_equal(s.folds, 5); /* a refused value leaves the old one */
    assert_int_equal(flim_settings_set(&s, "cv", "no", &err), FLIM_ERROR_USAGE);
    assert_int_equal(s.cv, FLIM_SPLIT_AUTO);
    flim_settings_free(&s);
}

/* Every row: its default reads back, its key and flag agree, its choices are those of the module that uses them. */
static void the_table_is_sound(void **state)
{
    (void)state;
    flim_settings s = expect_parsed(""), t = expect_parsed("");
    for (int i = 0; i < flim_settings_table.n; i++) {
        const flim_flag_row *row = &flim_settings_table.row[i];
        char key[FLIM_KEY_MAX];
        flim_flag_key(row, key, sizeof key);
        assert_ptr_equal(flim_settings_find(key), row);
        assert_null(strchr(row->name, '_'));
        assert_true(strlen(row->help) > 5 && row->help[strlen(row->help) - 1] != '.');
        assert_true((row->type == FLIM_VALUE_SWITCH) == (row->metavar == NULL));
        if (row->type != FLIM_VALUE_LIST) {
            char *text = flim_flag_text(row, &s, NULL);
            if (text[0]) {
                flim_error err = {0};
                if (flim_settings_set(&t, key, text, &err) != FLIM_OK) {
                    fail_msg("%s: %s", key, err.text);
                }
            }
            flim_free(text);
        }
        assert_true((row->type == FLIM_VALUE_CHOICE) == (row->choices != NULL));
        if (row->on_resume <= FLIM_ON_RESUME_UNSET || row->on_resume > FLIM_ON_RESUME_CALL) {
            fail_msg("%s: the row does not say what --resume does with it", key);
        }
        if (row->identity <= FLIM_IDENTITY_UNSET || row->identity >= FLIM_IDENTITY_FIELDS) {
            fail_msg("%s: the row does not say whether it is part of the run's identity", key);
        }
        /* What changes numbers is part of the identity, itself or as what it leads to: cells, splits, width, weights, lr. */
        static const char *const elsewhere[] = {
            "folds",       "cv",           "holdout_group",     "val_fraction", "splits",   "preset",  "lr_batch", "lr_scale",
            "test_groups", "train_groups", "splits_by",         "val_groups",   "fraction", "exclude", "width",    "depth",
            "stages",      "stage",        "pretrain_per_fold", "pretraining"};
        /* It changes no number, but what a checkpoint and history.csv hold. */
        bool named = row->identity != FLIM_IDENTITY_NONE || strcmp(key, "diagnostics") == 0;
        for (size_t k = 0; k < sizeof elsewhere / sizeof elsewhere[0]; k++) {
            named = named || strcmp(key, elsewhere[k]) == 0;
        }
        if ((row->on_resume == FLIM_ON_RESUME_FIXED || row->on_resume == FLIM_ON_RESUME_REFUSED) && !named) {
            fail_msg("%s: --resume refuses it, and nothing of it is in the identity", key);
        }
        for (int k = 0; k < i && row->identity != FLIM_IDENTITY_NONE; k++) {
            assert_int_not_equal(row->identity, flim_settings_table.row[k].identity);
        }
    }
    expect_equal(&s, &t);
    flim_settings_free(&s);
    flim_settings_free(&t);
}

/* A value that is not the default, of every row. */
static const char *other_value(const flim_flag_row *row)
{
    switch (row->type) {
    case FLIM_VALUE_SWITCH: return strcmp(row->initial, "true") == 0 ? "false" : "true";
    case FLIM_VALUE_TEXT:
        return row->valid ? strcmp(row->name, "axes") == 0            ? "TYXN"
                            : strcmp(row->name, "class-weights") == 0 ? "1,2.5"
                            : strcmp(row->name, "seeds") == 0         ? "1-3,7"
                                                                      : "cuda:3"
                          : "a: 'b' # c";
    case FLIM_VALUE_CHOICE: return row->choices[strcmp(row->choices[0], row->initial) == 0];
    case FLIM_VALUE_LIST: return strcmp(row->name, "devices") == 0 ? "all" : "x, y";
    case FLIM_VALUE_REAL: return "0.0625";
    default: return strcmp(row->name, "width") == 0 ? "12" : "3";
    }
}

/* Every row, and every choice of each: set from text, printed, read back. */
static void every_value_goes_round(void **state)
{
    (void)state;
    for (int i = 0; i < flim_settings_table.n; i++) {
        const flim_flag_row *row = &flim_settings_table.row[i];
        char key[FLIM_KEY_MAX];
        flim_flag_key(row, key, sizeof key);
        for (int k = 0; k == 0 || (row->choices && row->choices[k]); k++) {
            const char *value = row->choices ? row->choices[k] : other_value(row);
            flim_settings s = expect_parsed(""), t = expect_parsed("");
            flim_error err = {0};
            if (flim_settings_set(&s, key, value, &err) != FLIM_OK) {
                fail_msg("%s: %s", key, err.text);
            }
            char differences[1024] = "";
            flim_settings_compare(&t, &s, count_difference, differences);
            assert_true((strncmp(differences, key, strlen(key)) == 0) == (strcmp(value, row->initial) != 0));
            if (row->type == FLIM_VALUE_CHOICE) {
                assert_int_equal(*(const int *)((const char *)&s + row->offset), k);
            }
            if (flim_settings_copy(&s, &t, &err) != FLIM_OK) {
                fail_msg("%s: %s", key, err.text);
            }
            expect_equal(&s, &t);
            flim_settings_free(&t);
            t = expect_parsed("");
            char *text = printed(&s);
            put("round.yaml", text);
            if (flim_settings_read(&t, "round.yaml", &err) != FLIM_OK) {
                fail_msg("%s = %s: %s", key, value, err.text);
            }
            expect_equal(&s, &t);
            free(text);
            flim_settings_free(&s);
            flim_settings_free(&t);
        }
    }
}

static void help_names_every_flag(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    flim_settings s;
    flim_error err = {0};
    assert_int_equal(parse_to(out, "--help", &s, NULL, &err), FLIM_OK);
    fclose(out);
    flim_settings_free(&s);
    for (int i = 0; i < flim_settings_table.n; i++) {
        char flag[64];
        const flim_flag_row *row = &flim_settings_table.row[i];
        snprintf(flag, sizeof flag, "\n  --%s%s", strcmp(row->initial, "true") == 0 ? "[no-]" : "", row->name);
        if (!strstr(text, flag)) {
            fail_msg("no %s in\n%s", flag, text);
        }
    }
    static const char *const want[] = {"\n  --config FILE", "\n  --set KEY=VALUE", "\n  --print-config",
                                       "\n  --version",     "Cross-validation\n",  "Exit codes"};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_non_null(strstr(text, want[i]));
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strlen(line) > 100) {
            fail_msg("%zu columns: %s", strlen(line), line);
        }
    }
    free(text);
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    put("inc.yaml", "batch: 3\nholdout_group: [a, b]\n");
    put("mem.yaml", "include: inc.yaml\nlr: 1\n");
    for (long n = 1;; n++) {
        char *argv[] = {"train_cv", "--config", "mem.yaml", "--set", "data=[a, b]", "--out", "x", "--fold", "2"};
        flim_settings s = {0}, copy = {0};
        bool go;
        flim_error err = {0};
        flim_string_list keys = {0};
        flim_alloc_fail_at(n);
        flim_status status = flim_settings_init(&s, &err);
        if (status == FLIM_OK) {
            status = flim_settings_parse(&s, 9, argv, &keys, stdout, &go, &err);
        }
        if (status == FLIM_OK) {
            status = flim_settings_write(&s, "out.yaml", &err);
        }
        if (status == FLIM_OK) {
            status = flim_settings_init(&copy, &err);
        }
        if (status == FLIM_OK) {
            status = flim_settings_copy(&s, &copy, &err);
        }
        long made = flim_alloc_fail_at(0);
        flim_settings_free(&s);
        flim_settings_free(&copy);
        flim_string_list_free(&keys);
        if (made < n) {
            assert_int_equal(status, FLIM_OK);
            assert_true(n > 60);
            break;
        }
        assert_int_equal(status, FLIM_ERROR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_specification),
        cmocka_unit_test(layers_go_by_their_strength),
        cmocka_unit_test(every_flag_sets_its_field),
        cmocka_unit_test(devices_are_told_by_their_text),
        cmocka_unit_test(amp_is_a_precision),
        cmocka_unit_test(mistakes_on_the_command_line),
        cmocka_unit_test(mistakes_in_a_file),
        cmocka_unit_test(yaml_as_people_write_it),
        cmocka_unit_test(includes),
        cmocka_unit_test(actions_and_explicit_keys),
        cmocka_unit_test(the_printed_config_reads_back_the_same),
        cmocka_unit_test(the_printed_config_is_as_documented),
        cmocka_unit_test(comparison_names_keys_and_values),
        cmocka_unit_test(one_key_can_be_set),
        cmocka_unit_test(the_table_is_sound),
        cmocka_unit_test(every_value_goes_round),
        cmocka_unit_test(help_names_every_flag),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
