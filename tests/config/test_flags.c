/* Command lines from a table: every type, every mistake, --help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/text.h"
#include "flim/flags.h"

typedef struct options {
    char *out, *device, *json;
    int before; /* before and after a choice: neither may change */
    enum { STRATIFIED, GROUP } mode;
    int after, colour; /* colour: -1 = none */
    int64_t batch, fold;
    uint64_t seed;
    double dropout, lr;
    bool scan, resume;
    flim_string_list data, group;
} options;

static bool is_device(const char *text)
{
    return strcmp(text, "cpu") == 0 || strncmp(text, "cuda", 4) == 0;
}

static const char *const modes[] = {"stratified", "group", NULL}, *const colours[] = {"red", "blue", NULL};

static const flim_flag_row rows[] = {
    {"Data", "data", FLIM_VALUE_LIST, offsetof(options, data), "data/flim.h5", "FILE", .help = "cells"},
    {NULL, "holdout-group", FLIM_VALUE_LIST, offsetof(options, group), "", "NAME", .help = "kept out"},
    {NULL, "scan", FLIM_VALUE_SWITCH, offsetof(options, scan), "true", .help = "read all cells first"},
    {NULL, "out", FLIM_VALUE_TEXT, offsetof(options, out), "", "DIR", .help = "folder"},
    {NULL, "device", FLIM_VALUE_TEXT, offsetof(options, device), "cpu", "D", "device", .allowed = "cpu or cuda",
     .valid = is_device, .also = "gpu", .also_value = "cuda"},
    {"Training", "cv", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, mode), "group", "MODE", "how cells are split",
     .choices = modes},
    {NULL, "colour", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, colour), "", "C", "colour", .choices = colours},
    {NULL, "batch", FLIM_VALUE_INTEGER, offsetof(options, batch), "64", "N", "cells a step", .allowed = ">= 1, <= 4096"},
    {NULL, "fold", FLIM_VALUE_INTEGER, offsetof(options, fold), "all", "K", "only this fold", .allowed = ">= 0",
     .word = "all", .word_value = -1, .also = "fold-index"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, offsetof(options, seed), "42", "N", .help = "seed"},
    {NULL, "dropout", FLIM_VALUE_REAL, offsetof(options, dropout), "0.25", "P", "probability", .allowed = ">= 0, < 1"},
    {NULL, "lr", FLIM_VALUE_REAL, offsetof(options, lr), "1e-4", "X",
     "learning rate, with a text that is long enough to be wrapped to a second line in the help of this program",
     .allowed = "> 0"},
    {NULL, "resume", FLIM_VALUE_SWITCH, offsetof(options, resume), "false", .help = "go on"},
    {NULL, "json", FLIM_VALUE_TEXT, offsetof(options, json), "", "FILE", .help = "all of it; alone: here", .alone = "-"},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
static const flim_flag_table table = {"tool", "tool [flag]... FILE...", "Tries flags.", rows, N_ROWS, .operand = "FILE"};
static const flim_flag_table bare = {"tool", "tool [flag]...", "", rows, N_ROWS, .epilogue = "The end."};

/* Splits a command line at blanks; '_' alone stands for an empty argument. */
static flim_status read_line(const flim_flag_table *t, const char *line, options *o, flim_string_list *operands, FILE *out,
                             bool *go, flim_error *err)
{
    static char text[512];
    char *argv[32] = {"tool"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = strcmp(word, "_") == 0 ? "" : word;
    }
    return flim_flag_table_read(t, o, argc, argv, operands, out, go, err);
}

static void defaults_come_from_the_table(void **state)
{
    (void)state;
    options o;
    bool go;
    flim_error err = {0};
    assert_int_equal(read_line(&bare, "", &o, NULL, stdout, &go, &err), FLIM_OK);
    assert_true(go);
    assert_true(o.data.n == 1 && o.group.n == 0 && o.scan && !o.resume && o.batch == 64 && o.fold == -1 && o.seed == 42);
    assert_true(o.dropout == 0.25 && o.lr == 1e-4);
    assert_string_equal(o.data.item[0], "data/flim.h5");
    assert_string_equal(o.out, "");
    assert_true(o.mode == GROUP && o.colour == -1);
    flim_flag_table_free(&bare, &o);
    flim_flag_table_free(&bare, &o); /* twice is harmless */
}

static void every_type_is_read(void **state)
{
    (void)state;
    options o;
    bool go;
    flim_error err = {0};
    flim_string_list operands = {0};
    memset(&o, 0x5a, sizeof o);
    assert_int_equal(
        read_line(
            &table,
            "--data a.h5 x --no-scan --data=b.h5 --batch=4096 --fold 3 --resume --seed 18446744073709551615 "
            "--dropout 0 --lr=2.5e-3 --cv stratified --colour blue --batch 7 --out=--odd=name --holdout-group D1 -- --y -",
            &o, &operands, stdout, &go, &err),
        FLIM_OK);
    assert_true(go);
    assert_true(o.data.n == 2 && o.group.n == 1 && !o.scan && o.resume && o.batch == 7 && o.fold == 3 &&
                o.seed == UINT64_MAX);
    assert_true(o.dropout == 0 && o.lr == 2.5e-3);
    assert_string_equal(o.data.item[1], "b.h5");
    assert_true(o.mode == STRATIFIED && o.colour == 1 && o.before == 0x5a5a5a5a && o.after == 0x5a5a5a5a);
    assert_string_equal(o.out, "--odd=name");
    assert_int_equal(operands.n, 3);
    assert_string_equal(operands.item[0], "x");
    assert_string_equal(operands.item[1], "--y");
    assert_string_equal(operands.item[2], "-");
    flim_string_list_free(&operands);
    flim_flag_table_free(&table, &o);
}

static void a_value_may_be_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *line, *json, *operand, *out; /* "": none */
    } cases[] = {
        {"", "", "", ""},
        {"--json", "-", "", ""},
        {"--json --resume", "-", "", ""},
        {"--json --out x", "-", "", "x"},
        {"--out x --json", "-", "", "x"},
        {"--json --", "-", "", ""},
        {"--json -- file", "-", "file", ""},
        {"--json=file", "file", "", ""},
        {"--json=--odd", "--odd", "", ""},
        {"--json=", "", "", ""},
        {"--json file", "file", "", ""},
        {"--json file other", "file", "other", ""},
        {"other --json", "-", "other", ""},
        {"--json -", "-", "", ""},
        {"--json=-", "-", "", ""},
        {"--json - other", "-", "other", ""},
        {"--json a --json", "-", "", ""},
        {"--json --json a", "a", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options o;
        bool go;
        flim_error err = {0};
        flim_string_list operands = {0};
        if (read_line(&table, cases[i].line, &o, &operands, stdout, &go, &err) != FLIM_OK) {
            fail_msg("'%s': %s", cases[i].line, err.text);
        }
        assert_true(go);
        const char *operand = operands.n ? operands.item[0] : "";
        if (strcmp(o.json, cases[i].json) != 0 || operands.n > 1 || strcmp(operand, cases[i].operand) != 0 ||
            strcmp(o.out, cases[i].out) != 0) {
            fail_msg("'%s': --json '%s', --out '%s', %d operands '%s'", cases[i].line, o.json, o.out, operands.n, operand);
        }
        flim_string_list_free(&operands);
        flim_flag_table_free(&table, &o);
    }
}

static void a_flag_may_stand_for_another_with_a_value(void **state)
{
    (void)state;
    static const struct {
        const char *line, *device;
    } cases[] = {{"--gpu", "cuda"},
                 {"--gpu --resume", "cuda"},
                 {"--device cuda:1 --gpu", "cuda"},
                 {"--gpu --device cpu", "cpu"},
                 {"--gpu --gpu", "cuda"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options o;
        bool go;
        flim_error err = {0};
        if (read_line(&bare, cases[i].line, &o, NULL, stdout, &go, &err) != FLIM_OK) {
            fail_msg("'%s': %s", cases[i].line, err.text);
        }
        assert_string_equal(o.device, cases[i].device);
        flim_flag_table_free(&bare, &o);
    }
    options o;
    bool go;
    flim_error err = {0};
    assert_int_equal(read_line(&bare, "--fold 1 --fold-index 3 --fold-index=2", &o, NULL, stdout, &go, &err), FLIM_OK);
    assert_int_equal(o.fold, 2);
    flim_flag_table_free(&bare, &o);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"--bach 3", "unknown flag --bach (did you mean --batch? tool --help lists all)"},
        {"--hlep", "unknown flag --hlep (did you mean --help?"}, /* exchanged letters are one slip */
        {"--verison", "unknown flag --verison (did you mean --version?"},
        {"--bacth 3", "unknown flag --bacth (did you mean --batch?"},
        {"--bat 3", "unknown flag --bat (did you mean --batch?"},
        {"--bananas 3", "unknown flag --bananas (tool --help lists all)"}, /* nothing is near */
        {"--no-resum", "unknown flag --no-resum (did you mean --no-resume?"},
        {"--no-batch 3", "unknown flag --no-batch"},
        {"--", ""},
        {"--=3", "unknown flag -- "},
        {"-b 3", "unknown flag -b: flags begin with two dashes"},
        {"-1", "unknown flag -1: flags begin with two dashes"},
        {"file", "unexpected argument 'file'"},
        {"_", "unexpected argument ''"},
        {"--batch", "--batch needs a value: --batch N"},
        {"--out --resume", "--out needs a value: --out DIR"},
        {"--batch 0", "--batch: 0 is out of range, must be >= 1, <= 4096"},
        {"--batch 4097", "--batch: 4097 is out of range, must be >= 1, <= 4096"},
        {"--batch 6.5", "--batch: '6.5' is not a whole number"},
        {"--batch 64x", "--batch: '64x' is not a whole number"},
        {"--batch _", "--batch: '' is not a whole number"},
        {"--batch= ", "--batch: '' is not a whole number"},
        {"--batch 99999999999999999999", "--batch: 99999999999999999999 is out of range"},
        {"--fold -1", "--fold: -1 is out of range, must be >= 0 or all"},
        {"--fold al", "--fold: 'al' is not a whole number"},
        {"--seed -1", "--seed: '-1' is not a whole number from 0"},
        {"--dropout 1", "--dropout: 1 is out of range, must be >= 0, < 1"},
        {"--dropout -0.1", "--dropout: -0.1 is out of range, must be >= 0, < 1"},
        {"--dropout nan", "--dropout: 'nan' is not a finite number"},
        {"--lr 0", "--lr: 0 is out of range, must be > 0"},
        {"--lr 1e999", "--lr: '1e999' is not a finite number"},
        {"--cv stratifed", "--cv: 'stratifed' is not one of stratified, group (did you mean 'stratified'?)"},
        {"--cv _", "--cv: '' is not one of stratified, group"},
        {"--colour _", "--colour: '' is not one of red, blue"},
        {"--cv Group", "--cv: 'Group' is not one of"},
        {"--cv", "--cv needs a value: --cv MODE"},
        {"--device gpu", "--device: 'gpu' is not cpu or cuda"},
        {"--resume=true", "--resume takes no value, found 'true' (there are --resume and --no-resume)"},
        {"--no-scan=x", "--no-scan takes no value"},
        {"--gpu=0", "--gpu takes no value, found '0' (it means --device cuda)"},
        {"--gpu 0", "unexpected argument '0'"},
        {"--no-gpu", "unknown flag --no-gpu"},
        {"--fold-index", "--fold needs a value"},
        {"--gp", "unknown flag --gp"},
        {"--data _", "--data: an empty name"},
        {"--out \xff\xfe", "--out: the value is not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options o;
        bool go;
        flim_error err = {0};
        flim_status status = read_line(&bare, cases[i].line, &o, NULL, stdout, &go, &err);
        if (status != (cases[i].want[0] ? FLIM_ERROR_USAGE : FLIM_OK) || go != (status == FLIM_OK) ||
            strncmp(err.text, cases[i].want, strlen(cases[i].want)) != 0) {
            fail_msg("'%s': status %d, '%s', expected '%s'", cases[i].line, (int)status, err.text, cases[i].want);
        }
        if (go) {
            flim_flag_table_free(&bare, &o);
        }
    }
}

static void help_and_version_win(void **state)
{
    (void)state;
    static const struct {
        const char *line, *want; /* "": the program runs */
    } cases[] = {{"--help", "Usage: tool [flag]... FILE...\n\nTries flags.\n"},
                 {"--oops 3 -h", "Usage: "},
                 {"--out x file --help", "Usage: "},
                 {"--version", "tool (flimcv) "},
                 {"--batch 0 --version", "tool (flimcv) "},
                 {"--batch 3 -- --help", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options o;
        bool go;
        flim_error err = {0};
        flim_string_list operands = {0};
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        assert_non_null(out);
        assert_int_equal(read_line(&table, cases[i].line, &o, &operands, out, &go, &err), FLIM_OK);
        assert_int_equal(fclose(out), 0);
        if (go != !cases[i].want[0] || go != (length == 0) || strncmp(text, cases[i].want, strlen(cases[i].want)) != 0) {
            fail_msg("'%s': %s, wrote '%s', expected '%s'", cases[i].line, go ? "runs" : "ends", text, cases[i].want);
        }
        free(text);
        if (go) {
            flim_string_list_free(&operands);
            flim_flag_table_free(&table, &o);
        }
        assert_int_equal(operands.n, 0);
    }
}

static void help_shows_every_row_in_80_columns(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    options o;
    bool go;
    flim_error err = {0};
    assert_int_equal(read_line(&bare, "--help", &o, NULL, out, &go, &err), FLIM_OK);
    fclose(out);
    static const char *const want[] = {
        "Usage: tool [flag]...\n\nData\n  --data FILE              cells (default data/flim.h5)\n",
        "\n  --holdout-group NAME     kept out\n",
        "\n  --[no-]scan              read all cells first (default on)\n",
        "\n  --out DIR                folder\n",
        "\n  --gpu                    the same as --device cuda\n",
        "\n  --fold-index K           the same as --fold\n",
        "\n\nTraining\n  --cv MODE                how cells are split: stratified, group\n                           "
        "(default group)\n",
        "\n  --colour C               colour: red, blue\n",
        "\n  --batch N                cells a step (default 64; 1..4096)\n",
        "\n  --fold K                 only this fold (default all; >= 0)\n",
        "\n  --resume                 go on\n",
        "\n  --json [FILE]            all of it; alone: here\n",
        "of this program\n                           (default 1e-4; > 0)\n",
        "\n  -h, --help               this text; --help=man: the manual page; --help=bash,\n                           "
        "--help=zsh: completion for that shell\n",
        "\n\nThe end.\n\nExit codes: 0 done, 2 usage",
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        if (!strstr(text, want[i])) {
            fail_msg("no '%s' in\n%s", want[i], text);
        }
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 80);
    }
    free(text);
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    const char *line[] = {"tool", "--data", "a", "--data", "b", "--out", "x", "--cv", "group", "file", "--oops"};
    for (int argc = 10; argc <= 11; argc++) { /* with and without the list of known names */
        for (long n = 1;; n++) {
            options o;
            bool go;
            flim_error err = {0};
            flim_string_list operands = {0};
            flim_alloc_fail_at(n);
            flim_status status = flim_flag_table_read(&table, &o, argc, (char *const *)line, &operands, stdout, &go, &err);
            long made = flim_alloc_fail_at(0);
            assert_int_equal(go, status == FLIM_OK);
            if (go) {
                flim_flag_table_free(&table, &o);
                flim_string_list_free(&operands);
            }
            assert_int_equal(operands.n, 0);
            if (made < n) {
                assert_int_equal(status, argc == 10 ? FLIM_OK : FLIM_ERROR_USAGE);
                assert_true(n > 10);
                break;
            }
            assert_int_equal(status, FLIM_ERROR_MEMORY);
        }
    }
}

static void utf8_is_told_from_other_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {{"", true},          {"plain", true},         {"\xc2\xb5", true},          {"\xf0\x9f\x94\xac", true},
                 {"\xc0\xaf", false}, {"\xed\xa0\x80", false}, {"\xf4\x90\x80\x80", false}, {"\xe2\x82", false},
                 {"a\x80", false},    {"\xff", false},         {"\xee\x80\x80", true},      {"\xe0\x9f\xbf", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(flim_utf8_is_valid(cases[i].text), cases[i].valid);
    }
    uint32_t code = 0;
    assert_int_equal(flim_utf8_length("\xf0\x9f\x94\xac", &code), 4);
    assert_int_equal(code, 0x1f52c);
    assert_int_equal(flim_utf8_length("\xe2\x82\xac", &code), 3);
    assert_int_equal(code, 0x20ac);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(a_value_may_be_left_out),
        cmocka_unit_test(a_flag_may_stand_for_another_with_a_value),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(help_and_version_win),
        cmocka_unit_test(help_shows_every_row_in_80_columns),
        cmocka_unit_test(every_failed_allocation_is_an_error),
        cmocka_unit_test(utf8_is_told_from_other_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
