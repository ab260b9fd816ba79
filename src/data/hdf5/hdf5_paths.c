#include "data/hdf5/hdf5_paths.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- may it be read? */

/* The length of path up to and without its last slash, at least 1 for "/name"; 0 if there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
}

/* The file (absolute, without links) lies in the folder of `path`, or below it. */
static bool inside_folder_of(const char *file, const char *path)
{
    char folder[FLIM_H5_PATH], real[PATH_MAX];
    const size_t length = folder_length(path);
    if (length >= sizeof folder) {
        return false;
    }
    memcpy(folder, length ? path : ".", length ? length : 1);
    folder[length ? length : 1] = '\0';
    if (!realpath(folder, real)) {
        return false;
    }
    const size_t n = strlen(real);
    return n == 1 || (strncmp(file, real, n) == 0 && file[n] == '/');
}

bool flim_h5_may_read(const flim_h5_watch *watch, const char *path, const char *how, char *text, size_t size)
{
    char file[PATH_MAX], own[PATH_MAX];
    struct stat about;
    text[0] = '\0';
    if (!realpath(path, file) || stat(file, &about) != 0) {
        snprintf(text, size, "%s %s, which is not there", how, path);
        return false;
    }
    if (!S_ISREG(about.st_mode)) {
        snprintf(text, size, "%s %s, which is no regular file", how, path);
        return false;
    }
    if (watch->allow_external || inside_folder_of(file, watch->path) ||
        (realpath(watch->path, own) && inside_folder_of(file, own))) {
        return true;
    }
    snprintf(
        text, size,
        "%s %s, outside of the data file's folder; a data file may lead to any file of this machine: if this one is meant, "
        "use --allow-external (allow_external: true), or put it beside the data file",
        how, file);
    return false;
}

/* ---- where is it? */

/* prefix/name, with "${ORIGIN}" at the start of the prefix for the folder of `from`; prefix NULL: name as it is. */
static bool exists(const char *from, const char *prefix, size_t length, const char *name, char path[FLIM_H5_PATH],
                   struct stat *about)
{
    static const char origin[] = "${ORIGIN}";
    int made;
    if (!prefix) {
        made = snprintf(path, FLIM_H5_PATH, "%s", name);
    } else if (length >= sizeof origin - 1 && strncmp(prefix, origin, sizeof origin - 1) == 0) {
        size_t folder = folder_length(from), rest = length - (sizeof origin - 1);
        made = snprintf(path, FLIM_H5_PATH, "%.*s%.*s/%s", folder ? (int)folder : 1, folder ? from : ".", (int)rest,
                        prefix + sizeof origin - 1, name);
    } else {
        made = snprintf(path, FLIM_H5_PATH, "%.*s/%s", (int)length, prefix, name);
    }
    return made > 0 && made < FLIM_H5_PATH && stat(path, about) == 0 && S_ISREG(about->st_mode);
}

/* One of the prefixes of the environment leads to it. */
static bool by_prefix(const char *from, const char *prefixes, bool several, const char *name, char path[FLIM_H5_PATH],
                      struct stat *about)
{
    while (prefixes && prefixes[0]) {
        const size_t length = several ? strcspn(prefixes, ":") : strlen(prefixes);
        if (length && exists(from, prefixes, length, name, path, about)) {
            return true;
        }
        prefixes += length + (prefixes[length] == ':');
    }
    return false;
}

bool flim_h5_find_file(const char *from, const char *name, const char *variable, bool several, bool beside,
                       char path[FLIM_H5_PATH], struct stat *about)
{
    char real[PATH_MAX];
    if (name[0] == '/') {
        if (exists(from, NULL, 0, name, path, about)) {
            return true;
        }
        if (!beside) {
            return false;
        }
        name = strrchr(name, '/') + 1; /* as for a folder that was moved */
    }
    return by_prefix(from, getenv(variable), several, name, path, about) ||
           (beside && folder_length(from) && exists(from, from, folder_length(from), name, path, about)) ||
           exists(from, NULL, 0, name, path, about) ||
           (beside && realpath(from, real) && exists(from, real, folder_length(real), name, path, about));
}
