#include "import/ptu_tags.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/little_endian.h"
#include "core/try.h"

enum { HEADER = 16, TAG = 48, MOST_PIXELS = 32768 };

/* Types of tags: what the eight bytes of a value are.  The last three are followed by as many bytes as the value says. */
#define TAG_INT 0x10000008u
#define TAG_FLOAT 0x20000008u
#define TAG_FLOAT_ARRAY 0x2001FFFFu
#define TAG_ANSI 0x4001FFFFu
#define TAG_WIDE 0x4002FFFFu
#define TAG_BLOB 0xFFFFFFFFu

bool flim_is_ptu(const flim_mapped_file *f)
{
    return f->size >= HEADER && memcmp(f->data, "PQTTTR", 6) == 0;
}

static void take_integer(flim_ptu_tags *tags, const char *name, int64_t value)
{
    const struct {
        const char *name;
        int64_t *field;
    } known[] = {{"TTResult_NumberOfRecords", &tags->records},
                 {"TTResultFormat_TTTRRecType", &tags->record_type},
                 {"ImgHdr_Dimensions", &tags->dimensions},
                 {"ImgHdr_PixX", &tags->pixels_x},
                 {"ImgHdr_PixY", &tags->pixels_y},
                 {"ImgHdr_BiDirect", &tags->bidirectional},
                 {"ImgHdr_LineStart", &tags->line_start},
                 {"ImgHdr_LineStop", &tags->line_stop},
                 {"ImgHdr_Frame", &tags->frame}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *known[i].field = value;
        }
    }
}

static void take_text(flim_field_file *file, const char *name, const uint8_t *text, size_t bytes)
{
    char *out = strcmp(name, "HW_Type") == 0                                  ? file->instrument
                : strcmp(name, "CreatorSW_Name") == 0 && !file->instrument[0] ? file->instrument
                                                                              : NULL;
    if (out) {
        snprintf(out, sizeof file->instrument, "PicoQuant %.*s", (int)(bytes < 64 ? bytes : 64), (const char *)text);
    }
}

static flim_status read_tags(flim_field_file *file, flim_ptu_tags *tags, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    *tags = (flim_ptu_tags){0};
    for (uint64_t at = HEADER;; at += TAG) {
        char name[33] = "";
        FLIM_TRY(flim_mapped_check(f, at, TAG, "a tag", err));
        const uint8_t *tag = f->data + at;
        const uint32_t type = flim_u32_at(tag + 36);
        const uint64_t value = flim_u64_at(tag + 40);
        memcpy(name, tag, 32);
        if (strcmp(name, "Header_End") == 0) {
            tags->data = at + TAG;
            return FLIM_OK;
        }
        if (type == TAG_FLOAT) {
            const double number = flim_f64_at(tag + 40);
            tags->resolution = strcmp(name, "MeasDesc_Resolution") == 0 ? number : tags->resolution;
            tags->global_resolution = strcmp(name, "MeasDesc_GlobalResolution") == 0 ? number : tags->global_resolution;
        } else if (type == TAG_FLOAT_ARRAY || type == TAG_ANSI || type == TAG_WIDE || type == TAG_BLOB) {
            FLIM_TRY(flim_mapped_check(f, at + TAG, value, name, err));
            if (type == TAG_ANSI) {
                take_text(file, name, tag + TAG, value);
            }
            at += value;
        } else {
            take_integer(tags, name, (int64_t)value);
        }
    }
}

/* The kinds of records that have decays; the others are named. */
static flim_status check_records(const flim_mapped_file *f, flim_ptu_tags *tags, flim_error *err)
{
    static const struct {
        int64_t type;
        flim_ptu_kind kind;
    } t3[] = {{0x00010303, FLIM_PTU_PICOHARP},    {0x00010304, FLIM_PTU_HYDRAHARP_1}, {0x01010304, FLIM_PTU_HYDRAHARP_2},
              {0x00010305, FLIM_PTU_HYDRAHARP_2}, {0x00010306, FLIM_PTU_HYDRAHARP_2}, {0x00010307, FLIM_PTU_HYDRAHARP_2}};
    for (size_t i = 0; i < sizeof t3 / sizeof t3[0]; i++) {
        if (t3[i].type == tags->record_type) {
            tags->kind = t3[i].kind;
            return FLIM_OK;
        }
    }
    if ((tags->record_type & 0xff00) == 0x0200) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: records of mode T2 (type 0x%08" PRIx64 "), which have arrival times but no decays; measure in "
                         "mode T3",
                         f->path, tags->record_type);
    }
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: records of type 0x%08" PRIx64
                     ", which is not known; expected mode T3 of PicoHarp, HydraHarp, TimeHarp "
                     "or MultiHarp",
                     f->path, tags->record_type);
}

static flim_status check_image(const flim_mapped_file *f, const flim_ptu_tags *tags, flim_error *err)
{
    if (tags->dimensions > 0 && tags->dimensions != 3) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: a measurement of %s, expected an image scan", f->path,
                         tags->dimensions == 1 ? "a point" : "a line");
    }
    if (tags->pixels_x < 1 || tags->pixels_y < 1 || tags->pixels_x > MOST_PIXELS || tags->pixels_y > MOST_PIXELS) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: a picture of %" PRId64 " x %" PRId64
                         " pixels (ImgHdr_PixY, ImgHdr_PixX), expected 1 to %d each",
                         f->path, tags->pixels_y, tags->pixels_x, MOST_PIXELS);
    }
    if (tags->line_start < 1 || tags->line_start > 4 || tags->line_stop < 1 || tags->line_stop > 4 || tags->frame < 0 ||
        tags->frame > 4) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: markers %" PRId64 ", %" PRId64 " and %" PRId64 " for start, stop and frame (ImgHdr_LineStart, "
                         "ImgHdr_LineStop, ImgHdr_Frame), expected 1 to 4",
                         f->path, tags->line_start, tags->line_stop, tags->frame);
    }
    if (!(tags->resolution > 0 && tags->resolution < 1) || !(tags->global_resolution > 0 && tags->global_resolution < 1) ||
        tags->global_resolution / tags->resolution > 32768) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: time bins of %g s in a laser period of %g s (MeasDesc_Resolution, MeasDesc_GlobalResolution), "
                         "expected 1 to 32768 of them",
                         f->path, tags->resolution, tags->global_resolution);
    }
    return FLIM_OK;
}

flim_status flim_ptu_read_tags(flim_field_file *file, flim_ptu_tags *out, flim_error *err)
{
    FLIM_TRY(read_tags(file, out, err));
    FLIM_TRY(check_records(&file->map, out, err));
    return check_image(&file->map, out, err);
}
