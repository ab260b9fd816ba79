/* The header of a PicoQuant .ptu: its tags, of which the picture, the clock and the kind of its records are needed.
 *
 * For: ptu.c.  Layout: PicoQuant's own description (PicoQuant-Time-Tagged-File-Format-Demos).
 * Owns: nothing.
 * Errors: FLIM_ERROR_DATA names what is missing or out of range; of records without decays what they are.
 */
#ifndef FLIM_IMPORT_PTU_TAGS_H
#define FLIM_IMPORT_PTU_TAGS_H

#include "import/field_file.h"

/* How a kind of record is packed: from the top, special (if any) + channel, dtime, sync. */
typedef enum flim_ptu_kind {
    FLIM_PTU_PICOHARP, /* channel 4, dtime 12, sync 16; channel 15 is special */
    FLIM_PTU_HYDRAHARP_1, /* special 1, channel 6, dtime 15, sync 10; an overflow counts once */
    FLIM_PTU_HYDRAHARP_2 /* the same; an overflow counts as often as its sync says */
} flim_ptu_kind;

typedef struct flim_ptu_tags {
    int64_t records, record_type, dimensions, pixels_x, pixels_y, bidirectional;
    int64_t line_start, line_stop, frame; /* numbers of markers, from 1; 0 = there is none */
    double resolution, global_resolution; /* seconds: of a time bin, of a sync period */
    uint64_t data; /* offset of the first record */
    flim_ptu_kind kind;
} flim_ptu_tags;

bool flim_is_ptu(const flim_mapped_file *file);
/* Reads the tags and checks what of them is needed; fills file->instrument. */
flim_status flim_ptu_read_tags(flim_field_file *file, flim_ptu_tags *out, flim_error *err);

#endif
