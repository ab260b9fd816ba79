#include "import/file_list.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"

enum { DEEPEST = 32 };

/* Numbers by value, everything else by bytes. */
static int by_name(const void *a, const void *b)
{
    const unsigned char *x = *(const unsigned char *const *)a, *y = *(const unsigned char *const *)b;
    while (*x && *y) {
        if (isdigit(*x) && isdigit(*y)) {
            const unsigned char *from_x = x + strspn((const char *)x, "0"), *from_y = y + strspn((const char *)y, "0");
            const size_t n = strspn((const char *)from_x, "0123456789"), m = strspn((const char *)from_y, "0123456789");
            const int order = n != m ? (n > m) - (n < m) : memcmp(from_x, from_y, n);
            if (order) {
                return order;
            }
            x = from_x + n;
            y = from_y + m;
        } else if (*x != *y) {
            return *x < *y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    const int order = (*x > 0) - (*y > 0);
    return order ? order : flim_compare_texts(a, b); /* cell_1 and cell_01 */
}

static flim_status read_folder(const char *path, flim_string_list *names, flim_error *err)
{
    DIR *folder = opendir(path);
    flim_status status = FLIM_OK;
    if (!folder) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %s", path, strerror(errno));
    }
    for (const struct dirent *entry; status == FLIM_OK && (entry = readdir(folder));) {
        if (entry->d_name[0] != '.') {
            status = flim_string_list_add(names, entry->d_name, err);
        }
    }
    closedir(folder);
    if (names->n > 1) {
        qsort(names->item, (size_t)names->n, sizeof *names->item, by_name);
    }
    return status;
}

static flim_status add_path(const char *path, int depth, flim_string_list *out, flim_error *err)
{
    struct stat about;
    flim_string_list names = {0};
    flim_status status = FLIM_OK;
    if (stat(path, &about) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(about.st_mode)) {
        return flim_string_list_add(out, path, err);
    }
    if (depth == DEEPEST) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: more than %d folders deep: is there a link to a folder above it?", path,
                         DEEPEST);
    }
    FLIM_TRY_DONE(read_folder(path, &names, err));
    for (int i = 0; i < names.n; i++) {
        const size_t length = strlen(path);
        char *below = flim_strprintf(err, "%s%s%s", path, length && path[length - 1] == '/' ? "" : "/", names.item[i]);
        FLIM_TRY_DONE(below ? FLIM_OK : FLIM_ERROR_MEMORY);
        status = add_path(below, depth + 1, out, err);
        flim_free(below);
        FLIM_TRY_DONE(status);
    }
done:
    flim_string_list_free(&names);
    return status;
}

flim_status flim_list_files(const char *const *path, int n_paths, flim_string_list *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    char **sorted = NULL;
    for (int i = 0; i < n_paths; i++) {
        FLIM_TRY(add_path(path[i], 0, out, err));
    }
    sorted = flim_alloc((size_t)out->n, sizeof *sorted, err);
    FLIM_TRY_DONE(sorted ? FLIM_OK : FLIM_ERROR_MEMORY);
    memcpy(sorted, out->item, (size_t)out->n * sizeof *sorted);
    qsort(sorted, (size_t)out->n, sizeof *sorted, by_name);
    for (int i = 1; i < out->n; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) == 0) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "%s is given twice", sorted[i]));
        }
    }
done:
    flim_free(sorted);
    return status;
}
