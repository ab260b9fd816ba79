#include "train/device_list.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/try.h"
#include "flim/device.h"

/* How many cards there are, asked in a process of its own: one that has initialised CUDA cannot start workers. */
static flim_status count_devices(int *n, flim_error *err)
{
    int ends[2], how = 0;
    flim_error why = {0};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return flim_fail(err, FLIM_ERROR, "cannot count the CUDA devices: no pipe");
    }
    const pid_t child = fork();
    if (child == 0) {
        why.status = flim_device_count(n, &why);
        const char *text = why.status == FLIM_OK ? (const char *)n : why.text;
        const size_t bytes = why.status == FLIM_OK ? sizeof *n : strlen(why.text) + 1;
        _exit(write(ends[1], text, bytes) == (ssize_t)bytes ? (int)why.status : 1);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], why.text, sizeof why.text - 1);
    close(ends[0]);
    if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how) || got <= 0) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "the CUDA devices could not be counted");
    }
    if (WEXITSTATUS(how) != FLIM_OK) {
        return flim_fail(err, (flim_status)WEXITSTATUS(how), "--devices: %s", why.text);
    }
    memcpy(n, why.text, sizeof *n);
    return FLIM_OK;
}

static flim_status add_all(flim_string_list *out, flim_error *err)
{
    int count = 0;
    char device[24];
    FLIM_TRY(count_devices(&count, err));
    for (int i = 0; i < count; i++) {
        snprintf(device, sizeof device, "cuda:%d", i);
        FLIM_TRY(flim_string_list_add(out, device, err));
    }
    return count > 0 ? FLIM_OK : flim_fail(err, FLIM_ERROR_DEVICE, "--devices all: there is no CUDA device");
}

/* An item of --devices, whose form the table has checked. */
static flim_status add_item(const char *text, flim_string_list *out, flim_error *err)
{
    char device[24];
    if (strcmp(text, "all") == 0) {
        return add_all(out, err);
    }
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ",");
        snprintf(device, sizeof device, "%s%.*s", *at >= '0' && *at <= '9' ? "cuda:" : "", (int)length, at);
        FLIM_TRY(flim_string_list_add(out, device, err));
        at += length + (at[length] == ',');
    }
    return FLIM_OK;
}

flim_status flim_list_devices(const flim_string_list *asked, flim_string_list *out, flim_error *err)
{
    for (int i = 0; i < asked->n; i++) {
        FLIM_TRY(add_item(asked->item[i], out, err));
    }
    return FLIM_OK;
}
