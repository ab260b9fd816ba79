#include "import/file_names.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

const char *flim_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A copy of the first `length` bytes of text. */
static char *copy_part(const char *text, size_t length, flim_error *err)
{
    return flim_strprintf(err, "%.*s", (int)length, text);
}

char *flim_path_stem(const char *path, flim_error *err)
{
    const char *base = flim_path_base(path), *dot = strrchr(base, '.');
    return copy_part(base, dot && dot > base ? (size_t)(dot - base) : strlen(base), err);
}

/* The name of the folder that a path of `length` bytes leads to, whatever it is called there; NULL if it cannot be found out. */
static char *real_name(const char *path, size_t length, flim_error *err)
{
    char real[PATH_MAX];
    char *folder = length > 0 ? copy_part(path, length, err) : flim_strdup(path[0] == '/' ? "/" : ".", err);
    const bool there = folder && realpath(folder, real);
    flim_free(folder);
    return there ? flim_strdup(real[1] ? flim_path_base(real) : real, err) : NULL;
}

char *flim_path_folder(const char *path, flim_error *err)
{
    size_t end = (size_t)(flim_path_base(path) - path), begin;
    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--) {
    }
    const size_t length = end - begin;
    if (length <= 2 && strncmp(path + begin, "..", length) == 0) { /* none, "." and ".." are no names */
        char *real = real_name(path, end, err);
        return real ? real : flim_strdup(".", err);
    }
    return copy_part(path + begin, length, err);
}

char *flim_path_beside(const char *path, const char *pattern, flim_error *err)
{
    const char *star = strchr(pattern, '*');
    if (!star) {
        return flim_strdup(pattern, err);
    }
    char *stem = flim_path_stem(path, err);
    const int folder = pattern[0] == '/' ? 0 : (int)(flim_path_base(path) - path);
    char *out =
        stem ? flim_strprintf(err, "%.*s%.*s%s%s", folder, path, (int)(star - pattern), pattern, stem, star + 1) : NULL;
    flim_free(stem);
    return out;
}
