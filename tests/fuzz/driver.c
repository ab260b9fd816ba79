/* Gives every file of the folders named on the command line to the target once: the corpora as plain tests. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1); /* its exact size, so that sanitizers see a read past it */
    size_t got = data && size >= 0 ? fread(data, 1, (size_t)size, f) : 0;
    fclose(f);
    int failed = !data || size < 0 || got != (size_t)size;
    if (!failed) {
        LLVMFuzzerTestOneInput(data, got);
    }
    free(data);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0, n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder));) {
            char path[4096];
            if (entry->d_name[0] != '.') {
                snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
                failed |= run_file(path);
                n++;
            }
        }
        closedir(folder);
    }
    printf("%d inputs\n", n);
    return failed || n == 0;
}
