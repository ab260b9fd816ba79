#include "core/shell.h"

#include <stdio.h>
#include <string.h>

void flim_shell_quote(const char *word, char *out, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+,:@%=-";
    size_t used = 0;
    if (word[0] && word[strspn(word, plain)] == '\0') {
        snprintf(out, size, "%s", word);
        return;
    }
    out[used++] = '\'';
    for (; *word && used + 6 < size; word++) {
        if (*word == '\'') {
            used += (size_t)snprintf(out + used, size - used, "'\\''");
        } else {
            out[used++] = *word;
        }
    }
    snprintf(out + used, size - used, "'");
}
