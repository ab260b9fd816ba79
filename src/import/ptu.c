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
#include "import/ptu_tags.h"

enum { DETECTORS = 64 };

/* ---- records ---- */

/* The functions below are compiled once per kind: where they are called, it is a constant. */
#define PER_KIND static inline __attribute__((always_inline))
#define CALL_WITH_KIND(RESULT, FUNCTION, KIND, ...)                                                                          \
    switch (KIND) {                                                                                                          \
    case FLIM_PTU_PICOHARP: RESULT FUNCTION(FLIM_PTU_PICOHARP, __VA_ARGS__); break;                                          \
    case FLIM_PTU_HYDRAHARP_1: RESULT FUNCTION(FLIM_PTU_HYDRAHARP_1, __VA_ARGS__); break;                                    \
    case FLIM_PTU_HYDRAHARP_2: RESULT FUNCTION(FLIM_PTU_HYDRAHARP_2, __VA_ARGS__); break;                                    \
    }

PER_KIND bool is_photon(flim_ptu_kind kind, uint32_t word)
{
    return kind == FLIM_PTU_PICOHARP ? word >> 28 != 15 : !(word >> 31);
}

PER_KIND uint32_t channel_of(flim_ptu_kind kind, uint32_t word)
{
    return kind == FLIM_PTU_PICOHARP ? word >> 28 : word >> 25 & 63;
}

PER_KIND uint32_t bin_of(flim_ptu_kind kind, uint32_t word)
{
    return kind == FLIM_PTU_PICOHARP ? word >> 16 & 0xfff : word >> 10 & 0x7fff;
}

/* Sync pulses since the last overflow record. */
PER_KIND uint32_t sync_of(flim_ptu_kind kind, uint32_t word)
{
    return kind == FLIM_PTU_PICOHARP ? word & 0xffff : word & 1023;
}

/* Of a record that is no photon: the sync pulses that it says have overflowed; 0 for markers. */
PER_KIND uint64_t overflow_of(flim_ptu_kind kind, uint32_t word)
{
    if (kind == FLIM_PTU_PICOHARP) {
        return bin_of(kind, word) == 0 ? 65536 : 0;
    }
    const uint32_t times = sync_of(kind, word);
    return channel_of(kind, word) == 63 ? 1024 * (uint64_t)(kind == FLIM_PTU_HYDRAHARP_2 && times > 1 ? times : 1) : 0;
}

/* Of such a record: the bits of its markers; 0 for overflows and what is not known. */
PER_KIND uint32_t markers_of(flim_ptu_kind kind, uint32_t word)
{
    const uint32_t bits = kind == FLIM_PTU_PICOHARP ? bin_of(kind, word) & 15 : channel_of(kind, word);
    return bits <= 15 ? bits : 0;
}

/* ---- sorting ---- */

/* Records within the file. */
typedef struct record_list {
    const uint8_t *data; /* little-endian words */
    uint64_t n;
    flim_ptu_kind kind;
} record_list;

/* A frame's marker may come this many sync pulses after the start of its first line, or before the stop of the last line of the
 * frame before: the pulses of a scanner rise together, and each is noted in a period of its own. */
enum { TOGETHER = 16 };

typedef struct sorter {
    const char *path;
    const flim_ptu_tags *tags;
    record_list records;
    uint32_t detector;
    int64_t x, y, t;
    int bytes; /* per count: 2 or 4 */
    void *counts; /* (Y,X,T) */
    bool too_many; /* a count does not fit: nothing more is sorted */
    uint32_t start, stop, frame; /* bits of the markers; frame 0 = there is none */
    uint64_t base; /* sync pulses that overflow records have counted */
    uint64_t at; /* the next record */
    bool in_line, any_line; /* the latter: one has started */
    uint64_t line_at, line_base, line_start; /* its first record; base and time there */
    uint64_t line_photons, photons; /* of the detector, in the line until now and in all */
    uint64_t last; /* time of the last marker */
    int64_t row; /* of the frame; -1 before its first line */
    uint64_t placed;
} sorter;

static flim_status out_of_order(const sorter *s, const char *what, flim_error *err)
{
    const uint64_t record = s->at;
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: record %" PRIu64 " at offset %" PRIu64 ": %s: markers are out of order, and the file is damaged or "
                     "ImgHdr_LineStart, ImgHdr_LineStop or ImgHdr_Frame is wrong",
                     s->path, record, s->tags->data + 4 * record, what);
}

PER_KIND bool find_marker_of(flim_ptu_kind kind, sorter *s, uint32_t *markers, uint64_t *time)
{
    uint64_t photons = 0, at = s->at, base = s->base;
    uint32_t found = 0;
    for (; at < s->records.n; at++) {
        const uint32_t word = flim_u32_at(s->records.data + 4 * at);
        if (is_photon(kind, word)) {
            photons += channel_of(kind, word) == s->detector;
            continue;
        }
        const uint64_t overflow = overflow_of(kind, word);
        base += overflow;
        found = overflow ? 0 : markers_of(kind, word);
        if (found) {
            *time = base + sync_of(kind, word);
            break;
        }
    }
    *markers = found;
    s->line_photons += photons;
    s->at = at;
    s->base = base;
    return found != 0;
}

/* The next record that is a marker at s->at; the photons before it are counted.  False at the end. */
static bool find_marker(sorter *s, uint32_t *markers, uint64_t *time)
{
    bool found = false;
    CALL_WITH_KIND(found =, find_marker_of, s->records.kind, s, markers, time)
    return found;
}

/* One photon more in that voxel; false if it is full. */
static inline bool place_photon(void *counts, int bytes, size_t voxel)
{
    return bytes == 2 ? ++((uint16_t *)counts)[voxel] != 0 : ++((uint32_t *)counts)[voxel] != 0;
}

/* The photons of a line from record line_at on, of `length` sync pulses, into the row of counts at voxel `row`; `back`: it was
 * scanned from right to left.  The pixel is floor(since * X / length): a product of floating point, which misses it by one at most, is
 * put right in integers, as a division per photon and the jumps of a search cost several times as much. */
PER_KIND void place_photons_of(flim_ptu_kind kind, sorter *s, uint64_t length, size_t row, bool back)
{
    const uint8_t *data = s->records.data;
    const uint64_t pixels = (uint64_t)s->x, bins = (uint64_t)s->t, end = s->at;
    const uint32_t detector = s->detector;
    const double per_pulse = (double)pixels / (double)length;
    const int bytes = s->bytes;
    void *counts = s->counts;
    uint64_t base = s->line_base - s->line_start, placed = 0;
    for (uint64_t i = s->line_at; i < end; i++) {
        const uint32_t word = flim_u32_at(data + 4 * i);
        if (!is_photon(kind, word)) {
            base += overflow_of(kind, word);
            continue;
        }
        const uint64_t since = base + sync_of(kind, word), bin = bin_of(kind, word);
        if (channel_of(kind, word) != detector || since >= length || bin >= bins) {
            continue; /* before the line's start, `since` is beyond any length */
        }
        uint64_t x = (uint64_t)(int64_t)((double)(int64_t)since * per_pulse);
        x -= x * length > since * pixels;
        x += (x + 1) * length <= since * pixels;
        if (!place_photon(counts, bytes, row + (back ? pixels - 1 - x : x) * bins + bin)) {
            s->too_many = true;
            return;
        }
        placed++;
    }
    s->placed += placed;
}

/* The line has ended at `stop`.  Lines beyond the picture, a line without length, and photons whose time is not within it are in no
 * pixel. */
static void place_line(sorter *s, uint64_t stop)
{
    const uint64_t length = stop - s->line_start;
    if (s->row < 0 || s->row >= s->y || stop <= s->line_start || length >> 47) {
        return;
    }
    const size_t row = (size_t)(s->row * s->x) * (size_t)s->t;
    CALL_WITH_KIND(, place_photons_of, s->records.kind, s, length, row, s->tags->bidirectional > 0 && s->row % 2 == 1)
}

static void leave_line(sorter *s)
{
    s->photons += s->line_photons;
    s->line_photons = 0;
    s->in_line = false;
}

/* Does a stop follow a frame's marker so soon that both mean the end of the frame? */
static bool stop_follows(const sorter *s, uint64_t time)
{
    sorter ahead = *s;
    uint32_t markers;
    uint64_t when;
    ahead.at++;
    return find_marker(&ahead, &markers, &when) && (markers & s->stop) && when >= time && when - time <= TOGETHER;
}

/* A frame begins. */
static flim_status meet_frame(sorter *s, uint64_t time, flim_error *err)
{
    if (s->in_line && time - s->line_start <= TOGETHER) {
        s->row = 0; /* of the line that has just started */
        return FLIM_OK;
    }
    if (s->in_line && stop_follows(s, time)) {
        place_line(s, time);
        leave_line(s);
        s->any_line = false; /* the stop that follows ends nothing */
    }
    s->row = -1;
    return s->in_line ? out_of_order(s, "the marker of a frame within a line", err) : FLIM_OK;
}

static flim_status meet_markers(sorter *s, uint32_t markers, uint64_t time, flim_error *err)
{
    if (time < s->last) {
        return out_of_order(s, "a marker that is earlier than the one before", err);
    }
    s->last = time;
    if (markers & s->stop) {
        if (s->in_line) {
            place_line(s, time);
            leave_line(s);
        } else if (s->any_line && s->stop != s->start) {
            return out_of_order(s, "the stop of a line that has not started", err);
        }
    }
    if (markers & s->frame) {
        FLIM_TRY(meet_frame(s, time, err));
    }
    if (markers & s->start) {
        leave_line(s); /* one that never stopped has no length */
        s->in_line = s->any_line = true;
        s->line_start = time;
        s->line_at = s->at + 1;
        s->line_base = s->base;
        s->row++;
        if (!s->frame && s->row == s->y) { /* frames without a marker follow one another */
            s->row = 0;
        }
    }
    return FLIM_OK;
}

static flim_status list_records(const flim_mapped_file *f, const flim_ptu_tags *tags, record_list *out, flim_error *err)
{
    const uint64_t there = (f->size - tags->data) / 4;
    /* A count of 0 or less is one that was never written: the file's size then decides. */
    *out = (record_list){f->data + tags->data, tags->records > 0 ? (uint64_t)tags->records : there, tags->kind};
    return out->n <= there ? FLIM_OK
                           : flim_fail(err, FLIM_ERROR_DATA,
                                       "%s: its header counts %" PRIu64 " records, but the file ends after %" PRIu64
                                       ", at offset %zu: the file is truncated",
                                       f->path, out->n, there, f->size);
}

/* The recording may begin within a line and end within one: a stop before the first start and a line that has no stop are those
 * of good files; their photons are in no pixel. */
static flim_status sort_records(sorter *s, flim_error *err)
{
    uint32_t markers;
    uint64_t time = 0;
    for (; find_marker(s, &markers, &time) && !s->too_many; s->at++) {
        FLIM_TRY(meet_markers(s, markers, time, err));
    }
    leave_line(s);
    return FLIM_OK;
}

/* Bit d: detector d has photons. */
static uint64_t find_detectors(const record_list *r)
{
    const int shift = r->kind == FLIM_PTU_PICOHARP ? 28 : 25; /* above it: the channel, and what makes a record special */
    uint8_t seen[128] = {0};
    uint64_t found = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        seen[flim_u32_at(r->data + 4 * i) >> shift] = 1;
    }
    for (uint32_t top = 0; top < 128; top++) {
        const uint32_t word = top << shift;
        found |= seen[top] && is_photon(r->kind, word) ? (uint64_t)1 << channel_of(r->kind, word) : 0;
    }
    return found;
}

/* ---- the file ---- */

/* Bins in a laser period.  Files round both times: a quotient a millionth above a whole number is that number. */
static int64_t bins_of(const flim_ptu_tags *tags)
{
    return (int64_t)ceil(tags->global_resolution / tags->resolution - 1e-6);
}

static flim_status open_ptu(flim_field_file *file, flim_error *err)
{
    flim_ptu_tags tags;
    FLIM_TRY(flim_ptu_read_tags(file, &tags, err));
    record_list records;
    FLIM_TRY(list_records(&file->map, &tags, &records, err));
    const uint64_t found = find_detectors(&records);
    for (int d = 0; d < DETECTORS; d++) {
        if (found >> d & 1) {
            flim_field_image image = {.y = tags.pixels_y, .x = tags.pixels_x, .t = bins_of(&tags)};
            image.range_ns = (double)image.t * tags.resolution * 1e9;
            snprintf(image.name, sizeof image.name, "detector %d", d);
            FLIM_TRY(flim_field_add_image(file, &image, (uint64_t)d, err));
        }
    }
    return FLIM_OK;
}

static flim_status read_ptu(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    const flim_field_image *b = &file->image[image];
    flim_ptu_tags tags;
    sorter s = {.path = file->map.path, .tags = &tags, .too_many = true};
    record_list records;
    FLIM_TRY(flim_ptu_read_tags(file, &tags, err));
    FLIM_TRY(list_records(&file->map, &tags, &records, err));
    const size_t voxels = (size_t)(b->y * b->x * b->t);
    *out = (flim_counts){.y = b->y, .x = b->x, .t = b->t, .y_step = b->x * b->t, .x_step = b->t, .t_step = 1};
    for (int bytes = 2; bytes <= 4 && s.too_many; bytes += 2) {
        flim_free(out->memory);
        out->data = out->memory = flim_alloc_large(voxels, (size_t)bytes, err);
        if (!out->memory) {
            return FLIM_ERROR_MEMORY;
        }
        out->bytes = bytes;
        s = (sorter){.path = file->map.path,
                     .tags = &tags,
                     .records = records,
                     .detector = (uint32_t)file->place[image],
                     .x = b->x,
                     .y = b->y,
                     .t = b->t,
                     .bytes = bytes,
                     .counts = out->memory,
                     .start = 1u << (tags.line_start - 1),
                     .stop = 1u << (tags.line_stop - 1),
                     .frame = tags.frame > 0 ? 1u << (tags.frame - 1) : 0,
                     .row = -1};
        FLIM_TRY(sort_records(&s, err));
    }
    file->unplaced = s.photons - s.placed;
    return s.too_many
               ? flim_fail(err, FLIM_ERROR_DATA, "%s: more than %" PRIu32 " photons in one voxel", file->map.path, UINT32_MAX)
               : FLIM_OK;
}

const flim_field_format flim_format_ptu = {"PicoQuant .ptu", flim_is_ptu, open_ptu, read_ptu, NULL, false};
