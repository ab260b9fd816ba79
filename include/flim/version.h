/* The library's version: for --version, start-up lines, manual pages and files that name their writer. */
#ifndef FLIM_VERSION_H
#define FLIM_VERSION_H

const char *flim_version(void); /* "0.1.0" */
const char *flim_version_date(void); /* the day of that version: "2026-11-28" */

#endif
