#include "core/temporary_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANDOM_DIGITS = 16, STALE_SECONDS = 60 };

/* The temporary files of `name` (NULL: of any name) in a folder: ".NAME.<digits>.tmp", NAME cut at 200 bytes. */
static bool is_temporary(const char *entry, const char *name)
{
    static const char end[] = ".tmp";
    const size_t length = strlen(entry), tail = 1 + RANDOM_DIGITS + sizeof end - 1;
    if (entry[0] != '.' || length < 2 + tail || strcmp(entry + length - (sizeof end - 1), end) != 0) {
        return false;
    }
    const char *digits = entry + length - tail;
    if (digits[0] != '.' || strspn(digits + 1, "0123456789abcdef") != RANDOM_DIGITS) {
        return false;
    }
    const size_t own = (size_t)(digits - entry) - 1;
    return !name || (own == strnlen(name, 200) && strncmp(entry + 1, name, own) == 0);
}

void flim_sweep_temporary_files(const char *folder, const char *name, bool younger)
{
    DIR *list = opendir(folder);
    const struct dirent *entry;
    while (list && (entry = readdir(list))) {
        struct stat about;
        if (!is_temporary(entry->d_name, name)) {
            continue;
        }
        const int fd = openat(dirfd(list), entry->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
            (younger || time(NULL) - about.st_mtime > STALE_SECONDS) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            unlinkat(dirfd(list), entry->d_name, 0);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (list) {
        closedir(list);
    }
}

int flim_temporary_file(const char *folder, const char *name, char out[FLIM_FILE_PATH])
{
    for (int i = 0; i < 100; i++) {
        uint64_t number;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
            return -1;
        }
        const int wrote = snprintf(out, FLIM_FILE_PATH, "%s/.%.200s.%016" PRIx64 ".tmp", folder, name, number);
        if (wrote < 0 || wrote >= FLIM_FILE_PATH) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = open(out, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0) {
            /* Says that its writer lives; shared, so that HDF5 may read it.  Where there are no locks, its age says so. */
            (void)flock(fd, LOCK_SH | LOCK_NB);
            return fd;
        }
        if (errno != EEXIST) {
            return -1;
        }
    }
    return -1;
}
