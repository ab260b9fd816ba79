/* Text from templates: a subset of Mustache, filled from a JSON value.
 *
 * For: the report's page and its plot scripts, whose templates are built into the library (cmake/embed.cmake).
 *
 *     {{name}}              a text, escaped, or a whole number;  {{{name}}}  a text as it is;  {{.}}  the item itself
 *     {{name:.3}}           a number with three decimals;  {{name:+.3}}  with its sign;  {{name:9g}}  with nine digits
 *     {{#name}}..{{/name}}  once per item of an array; once for any other value but null, false and ""
 *     {{^name}}..{{/name}}  if {{#name}} would write nothing;  {{#@first}}  only for the first item of an array
 *     {{>file}}             another template;  {{>*name}} the one that the value names;  {{! comment }}
 *
 *      Names are searched in the innermost item first.  A section's tag, a comment or a file alone on a line leaves no line
 *      behind; a line that ends with a backslash goes on in the next, without that one's leading blanks.
 * Owns: nothing.  Errors: FLIM_ERROR for a fault in a template, a name without a value for one; FLIM_ERROR_MEMORY if the JSON
 *      value is incomplete.
 */
#ifndef FLIM_FORMATS_TEMPLATE_H
#define FLIM_FORMATS_TEMPLATE_H

#include <stdio.h>

#include "formats/json.h"

typedef struct flim_template {
    const char *name; /* of the file */
    const unsigned char *text; /* zero-terminated */
} flim_template;

typedef struct flim_template_set {
    const flim_template *file; /* (n) */
    size_t n;
    void (*escape)(FILE *stream, const char *text);
    const char *undefined; /* stands for a number that is null */
} flim_template_set;

flim_status flim_template_write(const flim_template_set *set, const char *name, const flim_json *values, FILE *stream,
                                flim_error *err);

#endif
