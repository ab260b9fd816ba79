#include "train/worker_event.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "core/text.h"

enum { HEAD = sizeof(uint32_t), FIXED = offsetof(flim_worker_event, text) };
_Static_assert((int)HEAD + (int)FIXED + (int)FLIM_WORKER_TEXT <= (int)FLIM_WORKER_MESSAGE,
               "a message is one write to a pipe");

void flim_worker_event_write(int file, const flim_worker_event *event)
{
    char message[FLIM_WORKER_MESSAGE];
    size_t length = strnlen(event->text, FLIM_WORKER_TEXT - 1);
    const uint32_t bytes = (uint32_t)(HEAD + FIXED + length);
    memcpy(message, &bytes, HEAD);
    memcpy(message + HEAD, event, FIXED);
    memcpy(message + HEAD + FIXED, event->text, length);
    while (write(file, message, bytes) < 0 && errno == EINTR) {
    }
}

int flim_worker_event_take(const char *bytes, size_t n, flim_worker_event *out)
{
    uint32_t size = 0;
    if (n < HEAD) {
        return 0;
    }
    memcpy(&size, bytes, HEAD);
    if (size < HEAD + FIXED || size >= HEAD + FIXED + FLIM_WORKER_TEXT) {
        return -1;
    }
    if (n < size) {
        return 0;
    }
    memcpy(out, bytes + HEAD, FIXED);
    memcpy(out->text, bytes + HEAD + FIXED, size - HEAD - FIXED);
    out->text[size - HEAD - FIXED] = '\0';
    out->progress.device = &out->device;
    return (int)size;
}
