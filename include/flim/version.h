/* The library's version, "0.1.0".  Owns nothing, cannot fail. */
#ifndef FLIM_VERSION_H
#define FLIM_VERSION_H

const char *flim_version(void);

#endif
