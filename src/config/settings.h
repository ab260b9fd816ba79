/* The one table of settings, shared by the files of this folder. */
#ifndef FLIM_CONFIG_SETTINGS_H
#define FLIM_CONFIG_SETTINGS_H

#include "config/flag_table.h"
#include "flim/settings.h"

/* Rows of every setting (offsets in flim_settings), in the order of --help. */
extern const flim_flag_table flim_settings_table;

/* The row of a YAML key ("val_fraction"), or NULL. */
const flim_flag_row *flim_settings_find(const char *key);
/* FLIM_ERROR_USAGE: "WHERE: unknown key 'KEY' (did you mean ...)". */
flim_status flim_settings_unknown_key(const char *where, const char *key, flim_error *err);
/* Sets a key's row from text; a list gets one more item, or those of "[a, b]". */
flim_status flim_settings_set_row(flim_settings *settings, const flim_flag_row *row, const char *what, const char *text,
                                  flim_error *err);

enum { FLIM_MOST_SETTINGS = 96, FLIM_KEY_MAX = 64 };

#endif
