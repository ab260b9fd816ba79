/* PicoQuant .ptu: tags, then records of single photons and markers (time-tagged, mode T3), sorted into pixels here.
 *
 * Layouts of the records: PicoQuant's own description (PicoQuant-Time-Tagged-File-Format-Demos) and ptufile
 * (github.com/cgohlke/ptufile, BSD-3).  A pixel's photons are those whose place in the line, counted in sync pulses from the
 * start marker of the line to its stop marker, falls into it: x = floor((sync - start) * X / (stop - start)); frames are
 * summed.  T is the number of time bins of a laser period, rounded up: the last one may be cut short. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/little_endian.h"
#include "core/try.h"
#include "import/field_file.h"

enum { HEADER = 16, TAG = 48, DETECTORS = 64, MOST_PIXELS = 32768 };

/* Types of tags: what the eight bytes of a value are.  The last three are followed by as many bytes as the value says. */
#define TAG_INT 0x10000008u
#define TAG_FLOAT 0x20000008u
#define TAG_FLOAT_ARRAY 0x2001FFFFu
#define TAG_ANSI 0x4001FFFFu
#define TAG_WIDE 0x4002FFFFu
#define TAG_BLOB 0xFFFFFFFFu

/* How a kind of record is packed: from the top, special (if any) + channel, dtime, sync. */
typedef enum record_kind {
    RECORD_PICOHARP, /* channel 4, dtime 12, sync 16; channel 15 is special */
    RECORD_HYDRAHARP_1, /* special 1, channel 6, dtime 15, sync 10; an overflow counts once */
    RECORD_HYDRAHARP_2 /* the same; an overflow counts as often as its sync says */
} record_kind;

typedef struct ptu_tags {
    int64_t records, record_type, dimensions, pixels_x, pixels_y, bidirectional;
    int64_t line_start, line_stop, frame; /* numbers of markers, from 1; 0 = there is none */
    int64_t sync_rate; /* per second */
    double resolution, global_resolution; /* seconds: of a time bin, of a sync period */
    uint64_t data; /* offset of the first record */
    record_kind kind;
} ptu_tags;

static bool is_ptu(const flim_mapped_file *f)
{
    return f->size >= HEADER && memcmp(f->data, "PQTTTR", 6) == 0;
}

/* ---- tags ---- */

static void take_integer(ptu_tags *tags, const char *name, int64_t value)
{
    const struct {
        const char *name;
        int64_t *field;
    } known[] = {{"TTResult_NumberOfRecords", &tags->records},
                 {"TTResultFormat_TTTRRecType", &tags->record_type},
                 {"TTResult_SyncRate", &tags->sync_rate},
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

static flim_status read_tags(flim_field_file *file, ptu_tags *tags, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    *tags = (ptu_tags){0};
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
static flim_status check_records(const flim_mapped_file *f, ptu_tags *tags, flim_error *err)
{
    static const struct {
        int64_t type;
        record_kind kind;
    } t3[] = {{0x00010303, RECORD_PICOHARP},    {0x00010304, RECORD_HYDRAHARP_1}, {0x01010304, RECORD_HYDRAHARP_2},
              {0x00010305, RECORD_HYDRAHARP_2}, {0x00010306, RECORD_HYDRAHARP_2}, {0x00010307, RECORD_HYDRAHARP_2}};
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

/* ---- records ---- */

typedef struct record {
    bool photon, overflow;
    uint32_t markers; /* bits */
    uint32_t channel, dtime;
    uint64_t sync; /* with what overflowed before */
} record;

static record decode(record_kind kind, uint32_t word, uint64_t *base)
{
    record r = {0};
    if (kind == RECORD_PICOHARP) {
        const uint32_t channel = word >> 28, dtime = word >> 16 & 0xfff;
        r.sync = *base + (word & 0xffff);
        r.photon = channel != 15;
        r.channel = channel;
        r.dtime = dtime;
        r.overflow = !r.photon && dtime == 0;
        r.markers = r.photon ? 0 : dtime & 15;
        *base += r.overflow ? 65536 : 0;
        return r;
    }
    const uint32_t channel = word >> 25 & 63, sync = word & 1023;
    const bool special = word >> 31;
    r.sync = *base + sync;
    r.photon = !special;
    r.channel = channel;
    r.dtime = word >> 10 & 0x7fff;
    r.overflow = special && channel == 63;
    r.markers = special && channel >= 1 && channel <= 15 ? channel : 0;
    if (r.overflow) {
        *base += 1024 * (uint64_t)(kind == RECORD_HYDRAHARP_2 && sync > 1 ? sync : 1);
    }
    return r;
}

/* Sorting photons: those of a line are kept until its stop marker says how long it was. */
typedef struct photon {
    uint64_t sync;
    uint32_t dtime;
} photon;

typedef struct sorter {
    const flim_field_file *file;
    const ptu_tags *tags;
    int detector; /* -1: only counts the detectors' photons */
    int64_t x, y, t;
    uint32_t *counts; /* (Y,X,T) */
    photon *line; /* (capacity) of the line at work */
    size_t n_line, capacity;
    bool in_line;
    uint64_t line_start;
    int64_t row; /* of the frame; -1 before its first line */
    uint64_t unplaced;
    uint64_t of_detector[DETECTORS];
} sorter;

static flim_status keep(sorter *s, const record *r, flim_error *err)
{
    if (s->n_line == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 4096;
        photon *grown = flim_realloc(s->line, capacity, sizeof *grown, err);
        if (!grown) {
            return FLIM_ERROR_MEMORY;
        }
        s->line = grown;
        s->capacity = capacity;
    }
    s->line[s->n_line++] = (photon){r->sync, r->dtime};
    return FLIM_OK;
}

/* The line has ended at `stop`: its photons into their pixels.  Lines beyond the picture, a line without length, and photons
 * whose time is not within it (the records of a damaged file need not be in order) are not in it. */
static flim_status end_line(sorter *s, uint64_t stop, flim_error *err)
{
    const bool placed = s->row >= 0 && s->row < s->y && stop > s->line_start;
    const bool back = s->tags->bidirectional > 0 && s->row % 2 == 1;
    for (size_t i = 0; i < s->n_line; i++) {
        const photon *p = &s->line[i];
        if (!placed || p->sync < s->line_start || p->sync >= stop || p->dtime >= (uint64_t)s->t) {
            s->unplaced++;
            continue;
        }
        int64_t x = (int64_t)((double)(p->sync - s->line_start) * (double)s->x / (double)(stop - s->line_start));
        x = x < s->x ? x : s->x - 1;
        x = back ? s->x - 1 - x : x;
        uint32_t *count = s->counts + (s->row * s->x + x) * s->t + p->dtime;
        if (*count == UINT32_MAX) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: more than %" PRIu32 " photons in one voxel", s->file->map.path,
                             UINT32_MAX);
        }
        ++*count;
    }
    s->n_line = 0;
    s->in_line = false;
    return FLIM_OK;
}

static flim_status meet_markers(sorter *s, const record *r, flim_error *err)
{
    const ptu_tags *tags = s->tags;
    const uint32_t start = 1u << (tags->line_start - 1), stop = 1u << (tags->line_stop - 1);
    const uint32_t frame = tags->frame > 0 ? 1u << (tags->frame - 1) : 0;
    if ((r->markers & stop) && s->in_line) {
        FLIM_TRY(end_line(s, r->sync, err));
    }
    if (frame && (r->markers & frame)) {
        s->unplaced += s->n_line; /* a frame that ends within a line */
        s->n_line = 0;
        s->in_line = false;
        s->row = -1;
    }
    if (r->markers & start) {
        if (s->in_line) {
            if (stop != start) { /* a line that never stopped has no length */
                s->unplaced += s->n_line;
                s->n_line = 0;
            } else {
                FLIM_TRY(end_line(s, r->sync, err));
            }
        }
        s->in_line = true;
        s->line_start = r->sync;
        s->row++;
        if (!frame && s->row == s->y) { /* frames without a marker follow one another */
            s->row = 0;
        }
    }
    return FLIM_OK;
}

static flim_status sort_records(sorter *s, flim_error *err)
{
    const flim_mapped_file *f = &s->file->map;
    const uint64_t there = (f->size - s->tags->data) / 4;
    /* A count of 0 or less is one that was never written: the file's size then decides. */
    const uint64_t n = s->tags->records > 0 ? (uint64_t)s->tags->records : there;
    if (n > there) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: its header counts %" PRIu64 " records, but the file ends after %" PRIu64
                         ": the file is truncated",
                         f->path, n, there);
    }
    uint64_t base = 0;
    s->row = -1;
    for (uint64_t i = 0; i < n; i++) {
        const record r = decode(s->tags->kind, flim_u32_at(f->data + s->tags->data + 4 * i), &base);
        if (r.photon) {
            s->of_detector[r.channel & (DETECTORS - 1)]++;
            if ((int64_t)r.channel == s->detector) {
                if (s->in_line) {
                    FLIM_TRY(keep(s, &r, err));
                } else {
                    s->unplaced++;
                }
            }
        } else if (r.markers && s->detector >= 0) {
            FLIM_TRY(meet_markers(s, &r, err));
        }
    }
    s->unplaced += s->n_line; /* a last line that never stopped */
    return FLIM_OK;
}

/* ---- the file ---- */

static flim_status check_image(const flim_mapped_file *f, const ptu_tags *tags, flim_error *err)
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

/* Bins in a laser period.  Files round both times: a quotient a millionth above a whole number is that number. */
static int64_t bins_of(const ptu_tags *tags)
{
    return (int64_t)ceil(tags->global_resolution / tags->resolution - 1e-6);
}

static flim_status open_ptu(flim_field_file *file, flim_error *err)
{
    ptu_tags tags;
    FLIM_TRY(read_tags(file, &tags, err));
    FLIM_TRY(check_records(&file->map, &tags, err));
    FLIM_TRY(check_image(&file->map, &tags, err));
    sorter count = {.file = file, .tags = &tags, .detector = -1};
    FLIM_TRY(sort_records(&count, err));
    for (int d = 0; d < DETECTORS; d++) {
        if (count.of_detector[d] > 0) {
            flim_field_image image = {.y = tags.pixels_y, .x = tags.pixels_x, .t = bins_of(&tags)};
            image.range_ns = (double)image.t * tags.resolution * 1e9;
            snprintf(image.name, sizeof image.name, "detector %d", d);
            FLIM_TRY(flim_field_add_image(file, &image, (uint64_t)d, err));
        }
    }
    return FLIM_OK;
}

static flim_status read_ptu(flim_field_file *file, int image, uint32_t *counts, flim_error *err)
{
    const flim_field_image *b = &file->image[image];
    ptu_tags tags;
    FLIM_TRY(read_tags(file, &tags, err));
    FLIM_TRY(check_records(&file->map, &tags, err));
    sorter sorted = {
        .file = file, .tags = &tags, .detector = (int)file->place[image], .x = b->x, .y = b->y, .t = b->t, .counts = counts};
    const flim_status status = sort_records(&sorted, err);
    file->unplaced = sorted.unplaced;
    flim_free(sorted.line);
    return status;
}

const flim_field_format flim_format_ptu = {"PicoQuant .ptu", is_ptu, open_ptu, read_ptu, NULL, false};
