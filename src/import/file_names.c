#include "import/file_names.h"

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

char *flim_path_folder(const char *path, flim_error *err)
{
    const char *base = flim_path_base(path);
    if (base == path) {
        return flim_strdup(".", err);
    }
    const char *end = base - 1, *begin = end;
    while (begin > path && begin[-1] != '/') {
        begin--;
    }
    return copy_part(begin, (size_t)(end - begin), err);
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
