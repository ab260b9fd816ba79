/* The library's version, "0.1.0": for --version, start-up lines and files that name their writer. */
#ifndef FLIM_VERSION_H
#define FLIM_VERSION_H

const char *flim_version(void);

#endif
