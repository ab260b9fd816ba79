/* Reads and imports files for import_speed.py, which times Python's readers beside it.  A line of the standard input is a command,
 * its words separated by tabs:
 *   read AXES PATH             opens PATH, reads its first image, sums its photons and closes it
 *   import AXES OUT PATH...    flim_import of the files
 * The answer is a line: milliseconds, those of processor time, and photons.  AXES: YXT or TYX, of bare arrays. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "import/import.h"

enum { MOST_WORDS = 4096, MOST_LINE = 1 << 20 };

static uint64_t read_file(const char *path, const flim_field_options *options)
{
    flim_field_file *file;
    flim_counts counts;
    flim_error err = {0};
    uint64_t photons = 0;
    if (flim_field_open(path, options, &file, &err) != FLIM_OK || flim_field_read(file, 0, &counts, &err) != FLIM_OK) {
        fprintf(stderr, "read_speed: %s\n", err.text);
        exit(1);
    }
    const size_t pixels = (size_t)(counts.y * counts.x);
    uint64_t *of_pixel = flim_alloc(pixels, sizeof *of_pixel, &err);
    for (size_t i = 0; of_pixel && i < pixels; i++) {
        if (i == 0) {
            flim_counts_sum(&counts, of_pixel);
        }
        photons += of_pixel[i];
    }
    flim_free(of_pixel);
    flim_counts_free(&counts);
    flim_field_close(file);
    return photons;
}

static uint64_t import_files(char **word, int n, const flim_field_options *options)
{
    const flim_import_request request = {
        .out = word[2], .input = (const char *const *)word + 3, .n_inputs = n - 3, .fields = *options, .range_ns = 10};
    flim_import_result result;
    flim_error err = {0};
    if (flim_import(&request, &(flim_log){0}, &result, &err) != FLIM_OK) {
        fprintf(stderr, "read_speed: %s\n", err.text);
        exit(1);
    }
    return result.photons.total;
}

/* Of all threads of this process, in milliseconds. */
static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

int main(void)
{
    char *line = malloc(MOST_LINE), *word[MOST_WORDS];
    while (line && fgets(line, MOST_LINE, stdin)) {
        int n = 0;
        for (char *at = strtok(line, "\t\n"); at && n < MOST_WORDS; at = strtok(NULL, "\t\n")) {
            word[n++] = at;
        }
        if (n < 3) {
            return 1;
        }
        const flim_field_options options = {.axes = strcmp(word[1], "TYX") == 0 ? FLIM_ARRAY_TYX : FLIM_ARRAY_YXT};
        const double began = flim_seconds(), used = processor_time();
        const uint64_t photons =
            strcmp(word[0], "import") == 0 ? import_files(word, n, &options) : read_file(word[2], &options);
        printf("%.4f %.4f %" PRIu64 "\n", 1e3 * (flim_seconds() - began), processor_time() - used, photons);
        fflush(stdout);
    }
    free(line);
    return 0;
}
