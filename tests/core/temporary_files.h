/* How many temporary files of a writer stand beside a path. */
#ifndef FLIM_TEST_TEMPORARY_FILES_H
#define FLIM_TEST_TEMPORARY_FILES_H

#include <glob.h>
#include <stdio.h>
#include <string.h>

static inline size_t temporary_files_of(const char *path)
{
    char pattern[4200];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(pattern, sizeof pattern, "%.*s.%s.*.tmp", (int)(name - path), path, name);
    glob_t found;
    const size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n) {
        globfree(&found);
    }
    return n;
}

#endif
