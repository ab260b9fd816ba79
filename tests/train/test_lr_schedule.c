/* Learning rates against PyTorch 1.13's schedulers: tables that they printed, and their recurrences computed here in another
 * form. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/lr_schedule.h"

enum { MOST = 200 };

static flim_lr_schedule schedule(flim_lr_schedule_kind kind, double first, int64_t epochs)
{
    return (flim_lr_schedule){.kind = kind,
                              .first = first,
                              .epochs = epochs,
                              .restart_epochs = 10,
                              .restart_factor = 2,
                              .plateau_factor = 0.1,
                              .plateau_patience = 5};
}

static void expect(const char *what, const flim_lr_schedule *s, const double *monitored, const double *want, int n)
{
    for (int e = 0; e < n; e++) {
        const double found = flim_lr_at(s, e, monitored);
        if (!(fabs(found / want[e] - 1) <= 1e-12)) {
            fail_msg("%s, epoch %d: %.17g, expected %.17g", what, e, found, want[e]);
        }
    }
}

/* torch.optim.lr_scheduler, stepped once per epoch from lr 3e-3: CosineAnnealingLR(T_max=12, eta_min=1e-6);
 * CosineAnnealingWarmRestarts(T_0=2, T_mult=2 and T_0=3, T_mult=1); SequentialLR([LinearLR(1/4, 1, total_iters=3),
 * CosineAnnealingLR(T_max=5)], [3]). */
static void the_tables_are_torchs(void **state)
{
    (void)state;
    static const double cosine[] = {0.0030000000000000001,  0.0029489057765204577,  0.002799105092974766,
                                    0.002560806618389228,   0.0022502500000000001,  0.0018885991581312298,
                                    0.0015004999999999999,  0.0011124008418687702,  0.00075075000000000033,
                                    0.00044019338161077214, 0.00020189490702523418, 5.2094223479542238e-05};
    static const double doubling[] = {0.0030000000000000001,  0.0015004999999999999,  0.0030000000000000001,
                                      0.002560806618389228,   0.0015004999999999999,  0.00044019338161077208,
                                      0.0030000000000000001,  0.0028858573590006746,  0.002560806618389228,
                                      0.0020743338068314522,  0.0015004999999999999,  0.00092666619316854792,
                                      0.00044019338161077208, 0.00011514264099932553, 0.0030000000000000001};
    static const double alike[] = {0.0030000000000000001, 0.0022502500000000001, 0.00075075000000000033,
                                   0.0030000000000000001, 0.0022502500000000001, 0.00075075000000000033,
                                   0.0030000000000000001, 0.0022502500000000001};
    static const double warm[] = {0.00075000000000000002, 0.0015,
                                  0.0022500000000000003,  0.0030000000000000001,
                                  0.0027136209830652337,  0.0019638709830652338,
                                  0.0010371290169347662,  0.00028737901693476646};
    flim_lr_schedule s = schedule(FLIM_LR_SCHEDULE_COSINE, 3e-3, 12);
    expect("cosine", &s, NULL, cosine, 12);
    s = schedule(FLIM_LR_SCHEDULE_RESTARTS, 3e-3, 15);
    s.restart_epochs = 2;
    expect("restarts that double", &s, NULL, doubling, 15);
    s.restart_epochs = 3;
    s.restart_factor = 1;
    expect("restarts alike", &s, NULL, alike, 8);
    s = schedule(FLIM_LR_SCHEDULE_COSINE, 3e-3, 8);
    s.warmup = 3;
    expect("warm-up and cosine", &s, NULL, warm, 8);
}

/* ReduceLROnPlateau(factor=0.1, patience=1, min_lr=1e-6) from 3e-3, and (mode="max", factor=0.5, patience=0) from 1e-5, each
 * stepped with these values; 0.59999 is better than 0.6 by less than 1e-4 of it, 0.5999 by more. */
static void plateaus_are_torchs(void **state)
{
    (void)state;
    static const double loss[] = {0.7, 0.6, 0.61, 0.59999, 0.5999, 0.7, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5};
    static const double falling[] = {0.0030000000000000001,  0.0030000000000000001,  0.0030000000000000001,
                                     0.0030000000000000001,  0.00030000000000000003, 0.00030000000000000003,
                                     0.00030000000000000003, 0.00030000000000000003, 0.00030000000000000003,
                                     3.0000000000000004e-05, 3.0000000000000004e-05, 3.0000000000000005e-06,
                                     3.0000000000000005e-06, 9.9999999999999995e-07};
    static const double auc[] = {0.5, 0.6, (double)NAN, 0.60005, 0.61, 0.61, 0.61, 0.61, 0.7, 0.7, 0.7, 0.7};
    static const double rising[] = {1e-5, 1e-5, 1e-5, 5e-6, 2.5e-6, 2.5e-6, 1.25e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6};
    flim_lr_schedule s = schedule(FLIM_LR_SCHEDULE_PLATEAU, 3e-3, 14);
    s.plateau_patience = 1;
    expect("a loss", &s, loss, falling, 14);
    s = schedule(FLIM_LR_SCHEDULE_PLATEAU, 1e-5, 12);
    s.plateau_factor = 0.5;
    s.plateau_patience = 0;
    s.larger_is_better = true;
    expect("an AUC that once is undefined", &s, auc, rising, 12);
}

/* The scheduler sees no epoch of the warm-up: it begins where that ends. */
static void a_plateau_begins_after_the_warm_up(void **state)
{
    (void)state;
    double values[MOST], shifted[MOST], want[MOST];
    for (int e = 0; e < 40; e++) {
        values[e] = 1 + 0.3 * sin(e * 1.7) / (1 + e);
        shifted[e + 4] = values[e];
    }
    for (int e = 0; e < 4; e++) {
        shifted[e] = 1e-9; /* the best there ever was */
    }
    flim_lr_schedule s = schedule(FLIM_LR_SCHEDULE_PLATEAU, 1e-2, 50);
    s.plateau_patience = 2;
    for (int e = 0; e < 40; e++) {
        want[e] = flim_lr_at(&s, e, values);
    }
    s.warmup = 4;
    for (int e = 0; e < 40; e++) {
        assert_true(flim_lr_at(&s, e + 4, shifted) == want[e]);
    }
    for (int e = 0; e < 4; e++) {
        assert_true(fabs(flim_lr_at(&s, e, shifted) - 1e-2 * (e + 1) / 5) < 1e-17);
    }
    assert_true(want[39] < want[0]);
}

/* CosineAnnealingLR's own recurrence: lr(t + 1) = (1 + cos(pi (t + 1) / T)) / (1 + cos(pi t / T)) (lr(t) - eta) + eta. */
static void the_cosine_is_that_of_the_recurrence(void **state)
{
    (void)state;
    const double pi = acos(-1.0), eta = 1e-6;
    for (int epochs = 1; epochs <= MOST; epochs += 37) {
        const flim_lr_schedule s = schedule(FLIM_LR_SCHEDULE_COSINE, 1e-4, epochs);
        double rate = 1e-4;
        for (int t = 0; t < epochs; t++) {
            if (!(fabs(flim_lr_at(&s, t, NULL) / rate - 1) < 1e-9)) {
                fail_msg("epoch %d of %d: %.17g, expected %.17g", t, epochs, flim_lr_at(&s, t, NULL), rate);
            }
            rate = (1 + cos(pi * (t + 1) / epochs)) / (1 + cos(pi * t / epochs)) * (rate - eta) + eta;
        }
    }
}

static void a_constant_stays(void **state)
{
    (void)state;
    for (int kind = FLIM_LR_SCHEDULE_COSINE; kind <= FLIM_LR_SCHEDULE_CONSTANT; kind++) { /* as one below the least does */
        const double none[20] = {0};
        const flim_lr_schedule low = schedule((flim_lr_schedule_kind)kind, 1e-9, 20);
        for (int e = 0; e < 20; e++) {
            assert_true(flim_lr_at(&low, e, none) == 1e-9);
        }
    }
    flim_lr_schedule s = schedule(FLIM_LR_SCHEDULE_CONSTANT, 2e-4, 9);
    s.warmup = 1;
    assert_true(flim_lr_at(&s, 0, NULL) == 1e-4);
    for (int e = 1; e < 9; e++) {
        assert_true(flim_lr_at(&s, e, NULL) == 2e-4);
    }
}

/* torch's LinearLR(0.01, total_iters=5), then the cosine: a pretraining's. */
static void a_pretraining_warms_up_from_a_hundredth(void **state)
{
    (void)state;
    flim_settings settings;
    assert_int_equal(flim_settings_init_pretraining(&settings, NULL), FLIM_OK);
    const flim_lr_schedule s = flim_lr_schedule_of(&settings, 1e-3, false);
    assert_true(s.kind == FLIM_LR_SCHEDULE_COSINE && s.warmup == 5 && s.warmup_from == 0.01);
    static const double torch[] = {1e-5, 2.08e-4, 4.06e-4, 6.04e-4, 8.02e-4, 1e-3};
    for (int e = 0; e < 6; e++) {
        assert_true(fabs(flim_lr_at(&s, e, NULL) / torch[e] - 1) < 1e-12);
    }
    flim_settings_free(&settings);
}

/* Every field of the schedule comes from its setting. */
static void settings_become_a_schedule(void **state)
{
    (void)state;
    flim_settings settings;
    assert_int_equal(flim_settings_init(&settings, NULL), FLIM_OK);
    flim_lr_schedule s = flim_lr_schedule_of(&settings, 0.5, false);
    assert_true(s.kind == FLIM_LR_SCHEDULE_CONSTANT && s.first == 0.5 && s.epochs == 75 && s.warmup == 0 &&
                !s.larger_is_better);
    settings.schedule = FLIM_LR_SCHEDULE_PLATEAU;
    settings.epochs = 11;
    settings.warmup_epochs = 3;
    settings.restart_epochs = 4;
    settings.restart_factor = 5;
    settings.plateau_factor = 0.25;
    settings.plateau_patience = 6;
    s = flim_lr_schedule_of(&settings, 1, true);
    assert_true(s.kind == FLIM_LR_SCHEDULE_PLATEAU && s.epochs == 11 && s.warmup == 3 && s.restart_epochs == 4 &&
                s.restart_factor == 5 && s.plateau_factor == 0.25 && s.plateau_patience == 6 && s.larger_is_better);
    flim_settings_free(&settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_are_torchs),
        cmocka_unit_test(plateaus_are_torchs),
        cmocka_unit_test(a_plateau_begins_after_the_warm_up),
        cmocka_unit_test(the_cosine_is_that_of_the_recurrence),
        cmocka_unit_test(a_constant_stays),
        cmocka_unit_test(a_pretraining_warms_up_from_a_hundredth),
        cmocka_unit_test(settings_become_a_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
