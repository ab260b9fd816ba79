/* Config files: any bytes are read or refused with a text; what was read is printed, and that reads back the same. */
#include "fuzz.h"

#include <string.h>

#include "flim/settings.h"
#include "formats/yaml.h"

static void differs(void *context, const flim_flag_row *row, const char *value_a, const char *value_b)
{
    (void)context;
    fprintf(stderr, "%s: '%s' became '%s'\n", row->name, value_a, value_b);
    abort();
}

/* Every text of a file survives being written and read. */
static void check_texts(const flim_yaml *yaml)
{
    for (int i = 0; i < yaml->n; i++) {
        for (int k = 0; k < yaml->entry[i].value.n; k++) {
            const char *want = yaml->entry[i].value.item[k];
            char *text = NULL;
            size_t length = 0;
            FILE *out = open_memstream(&text, &length);
            if (!out) {
                abort();
            }
            fputs("key: ", out);
            flim_yaml_write_text(out, want);
            fputs("\n", out);
            fclose(out);
            flim_yaml back;
            flim_error err = {0};
            if (flim_yaml_parse(text, length, "text", &back, &err) != FLIM_OK || back.n != 1 || back.entry[0].is_list ||
                strcmp(back.entry[0].value.item[0], want) != 0) {
                fprintf(stderr, "'%s' became %s%s\n", want, text, err.text);
                abort();
            }
            flim_yaml_free(&back);
            free(text);
        }
    }
}

static void check_settings(const uint8_t *data, size_t size)
{
    char path[64], printed_path[64];
    int fd = flim_fuzz_file(data, size, path), printed = flim_fuzz_file("", 0, printed_path);
    FILE *out = fdopen(dup(printed), "wb");
    if (!out) {
        abort();
    }
    flim_settings a, b;
    flim_error err = {0};
    if (flim_settings_init(&a, &err) != FLIM_OK || flim_settings_init(&b, &err) != FLIM_OK) {
        abort();
    }
    flim_status status = flim_settings_read(&a, path, &err);
    if (status == FLIM_OK) {
        flim_settings_print(&a, out, &err);
        fflush(out);
        if (flim_settings_read(&b, printed_path, &err) != FLIM_OK) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
        flim_settings_compare(&a, &b, differs, NULL);
    } else if (err.text[0] == '\0') {
        abort();
    }
    flim_settings_free(&a);
    flim_settings_free(&b);
    fclose(out);
    close(printed);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    flim_yaml yaml;
    flim_error err = {0};
    char *text = malloc(size + 1);
    if (!text) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    flim_status status = flim_yaml_parse(text, size, "config", &yaml, &err);
    if (status == FLIM_OK) {
        check_texts(&yaml);
        flim_yaml_free(&yaml);
        /* Not those that include other files: the fuzzer would read the machine's own. */
        if (!strstr(text, "include")) {
            check_settings(data, size);
        }
    } else if (err.text[0] == '\0') {
        abort();
    }
    free(text);
    return 0;
}
