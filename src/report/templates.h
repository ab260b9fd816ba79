/* The files of templates/, which the build puts into the library. */
#ifndef FLIM_REPORT_TEMPLATES_H
#define FLIM_REPORT_TEMPLATES_H

#include "formats/template.h"

extern const flim_template report_templates[]; /* (report_templates_n) */
extern const size_t report_templates_n;

#endif
