/* Command lines that messages show, to be pasted into a shell. */
#ifndef FLIM_CORE_SHELL_H
#define FLIM_CORE_SHELL_H

#include <stddef.h>

/* The word as a shell takes it: in quotes where it holds more than letters, digits and a path's usual characters.  Cut where
 * out, of `size` > 8 bytes, is too short. */
void flim_shell_quote(const char *word, char *out, size_t size);

#endif
