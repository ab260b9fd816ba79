/* The identity of a run: its text, which checkpoints of every version carry, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/identity.h"

static flim_settings defaults(void)
{
    flim_settings s;
    assert_int_equal(flim_settings_init(&s, NULL), FLIM_OK);
    return s;
}

/* Fields keep their order, whichever is set first; names, order and formats are those of the first version. */
static void the_text_is_that_of_the_first_version(void **state)
{
    (void)state;
    flim_settings s = defaults();
    flim_identity id = {0};
    char text[FLIM_IDENTITY_TEXT];
    s.weight_decay = 0.1;
    s.mask_counts = true;
    s.threshold_for = FLIM_OBJECTIVE_YOUDEN;
    s.seed = UINT64_MAX;
    assert_int_equal(flim_settings_set(&s, "class_weights", "1,2.5", NULL), FLIM_OK);
    flim_identity_set_settings(&id, &s);
    flim_identity_resolve(&id, FLIM_IDENTITY_DEVICE, "%s", "cuda");
    flim_identity_resolve(&id, FLIM_IDENTITY_PRECISION, "%s", "tf32");
    flim_identity_resolve(&id, FLIM_IDENTITY_EVAL_BATCH, "%d", 32);
    flim_identity_resolve(&id, FLIM_IDENTITY_LR, "%.17g", 1e-4);
    flim_identity_set(&id, FLIM_IDENTITY_WIDTH, "width", true, "%d", 8);
    flim_identity_set(&id, FLIM_IDENTITY_INIT_WEIGHTS, "init_weights", true, "none");
    flim_identity_set(&id, FLIM_IDENTITY_SPLITS, "splits", true, "%.4s", "0123456");
    flim_identity_set(&id, FLIM_IDENTITY_SHAPE, "shape", true, "%dx%dx%d", 16, 9, 9);
    flim_identity_set(&id, FLIM_IDENTITY_CELLS, "cells", true, "%d", 72);
    flim_identity_text(&id, text);
    assert_string_equal(
        text, "cells 72, shape 16x9x9, splits 0123, width 8, init_weights none, seed 18446744073709551615, axes NTYX, "
              "mask_counts 1, monitor val_loss, threshold_for youden, device cuda, precision tf32, deterministic 0, "
              "benchmark 1, epochs 75, batch 64, accumulate 1, eval_batch 32, lr 0.0001, "
              "weight_decay 0.10000000000000001, clip 35, label_smoothing 0.050000000000000003, dropout 0.25, "
              "sampler balanced, patience 20, tta 0, block_dropout 0, augment auto, refit 0, "
              "schedule constant, warmup_epochs 0, restart_epochs 10, restart_factor 2, plateau_factor 0.10000000000000001, "
              "plateau_patience 5, class_weights 1:2.5, focal_gamma 0, ema 0.97999999999999998, recalibrate_bn 1, "
              "sampler_repeats 4, "
              "mixup none, mixup_alpha 0.40000000000000002, mixup_probability 1, mixup_share cell, mixup_partner all, "
              "encoder_lr_scale 1, freeze_encoder 0, unfreeze_after 0, sync_batchnorm 0");
    flim_settings_free(&s);
}

/* --resume-override takes what is not fixed. */
static void cells_folds_and_weights_are_fixed(void **state)
{
    (void)state;
    static const char *const fixed[] = {"seed", "axes", "mask_counts", "monitor", "threshold_for", "refit"};
    flim_settings s = defaults();
    flim_identity id = {0};
    flim_identity_set_settings(&id, &s);
    for (int i = 0; i < FLIM_IDENTITY_FIELDS; i++) {
        bool is_fixed = false;
        for (size_t k = 0; k < sizeof fixed / sizeof fixed[0]; k++) {
            is_fixed = is_fixed || strcmp(id.value[i].name, fixed[k]) == 0;
        }
        assert_int_equal(id.value[i].fixed, is_fixed);
        assert_int_equal(flim_identity_is_of_data((flim_identity_field)i),
                         (i >= FLIM_IDENTITY_CELLS && i < FLIM_IDENTITY_SPLITS) || i == FLIM_IDENTITY_CLASS_NAMES ||
                             i == FLIM_IDENTITY_TIME_RANGE || i == FLIM_IDENTITY_MASK);
    }
    flim_settings_free(&s);
}

/* A setting that is part of the identity changes its text; every other leaves it. */
static void each_setting_of_the_identity_changes_it(void **state)
{
    (void)state;
    flim_settings base = defaults();
    flim_identity id = {0};
    char before[FLIM_IDENTITY_TEXT], after[FLIM_IDENTITY_TEXT];
    flim_identity_set_settings(&id, &base);
    flim_identity_text(&id, before);
    for (int i = 0; i < flim_settings_table.n; i++) {
        const flim_flag_row *row = &flim_settings_table.row[i];
        flim_settings s = defaults();
        void *value = (char *)&s + row->offset;
        flim_error err = {0};
        switch (row->type) {
        case FLIM_VALUE_SWITCH: *(bool *)value = !*(bool *)value; break;
        case FLIM_VALUE_INTEGER: *(int64_t *)value += 1; break;
        case FLIM_VALUE_UNSIGNED: *(uint64_t *)value += 1; break;
        case FLIM_VALUE_REAL: *(double *)value = *(double *)value * (1 + 0x1p-52) + 0x1p-1070; break; /* its last bit */
        case FLIM_VALUE_CHOICE: *(int *)value = *(int *)value == 0; break;
        case FLIM_VALUE_TEXT:
            assert_int_equal(flim_flag_set(row, &s, "",
                                           row->valid ? strcmp(row->name, "axes") == 0            ? "TYXN"
                                                        : strcmp(row->name, "class-weights") == 0 ? "1,2.5"
                                                        : strcmp(row->name, "seeds") == 0         ? "1-3"
                                                                                                  : "cpu"
                                                      : "x",
                                           &err),
                             FLIM_OK);
            break;
        case FLIM_VALUE_LIST: assert_int_equal(flim_string_list_add(value, "x", &err), FLIM_OK); break;
        }
        flim_identity_set_settings(&id, &s);
        flim_identity_text(&id, after);
        if ((strcmp(before, after) != 0) != (row->identity != FLIM_IDENTITY_NONE)) {
            fail_msg("%s: '%s' becomes '%s'", row->name, before, after);
        }
        flim_settings_free(&s);
    }
    flim_settings_free(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_that_of_the_first_version),
        cmocka_unit_test(cells_folds_and_weights_are_fixed),
        cmocka_unit_test(each_setting_of_the_identity_changes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
