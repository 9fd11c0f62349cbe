/* SPDX-License-Identifier: Apache-2.0 */
/* Merges ranks' timelines into one file; see timeline.h. */
#include "lib/job/trace/job_timeline.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LANE_MAX = (1 << TIMELINE_PID_BITS) - 1,
    /* microseconds, with their nanoseconds */
    DIGITS = 15,
};

/* ---- One event ------------------------------------------------------ */

static int64_t integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Takes the first event of one of the rank's programs: computes where its time
 * 0 is on our clock. */
static void take_start(const struct timeline *t, struct timeline_rank *r,
                       const struct offset *clock, json_t *args)
{
    int64_t base = integer_of(args, "monotonic_base_ns");
    int64_t wall = integer_of(args, "start_time_since_epoch_in_micros");

    if (base <= 0)
        return;
    r->has_shift = 1;
    /* The numbers are untrusted: unsigned arithmetic may wrap. */
    if (!clock || clock->known)
        r->shift_ns = (int64_t)((uint64_t)base - t->origin_ns -
                                (clock ? (uint64_t)clock->ahead_ns : 0));
    else if (wall > 0 && wall < INT64_MAX / 1000)
        r->shift_ns = wall * 1000 - (int64_t)t->wall_ns;
    if (clock && clock->known)
        json_object_set_new(args, "clock_error_ns",
                            json_integer((json_int_t)clock->error_ns));
}

static void rename_lane(const struct timeline_rank *r, json_t *args)
{
    const char *name = json_string_value(json_object_get(args, "name"));
    char *full;

    if (!name)
        return;
    full = hb_xasprintf("[%d] %s", r->rank, name);
    json_object_set_new(args, "name", json_string(full));
    hb_free(full);
}

/* Moves the event to our clock: 1, or 0 if it is malformed. */
static int place_in_time(const struct timeline_rank *r, json_t *event)
{
    json_t *ts = json_object_get(event, "ts");
    double us = json_number_value(ts);

    if (!ts)
        return 1;
    if (!json_is_number(ts) || !r->has_shift || !isfinite(us) ||
        fabs(us) > 1e14)
        return 0;
    us = (round(us * 1e3) + (double)r->shift_ns) / 1e3;
    json_object_set_new(event, "ts", json_real(us < 0 ? 0 : us));
    return 1;
}

static int place_in_lanes(const struct timeline_rank *r, json_t *event,
                          json_t *args)
{
    int64_t lane = integer_of(event, "pid");
    int64_t pid = ((int64_t)r->rank << TIMELINE_PID_BITS) + lane;

    if (lane < 0 || lane > LANE_MAX)
        return 0;
    json_object_set_new(event, "pid", json_integer(pid));
    if (json_object_get(args, "sort_index"))
        json_object_set_new(args, "sort_index", json_integer(pid));
    return 1;
}

static int take_event(struct timeline *t, struct timeline_rank *r,
                      const struct offset *clock, json_t *event)
{
    json_t *args = json_object_get(event, "args");
    const char *name = json_string_value(json_object_get(event, "name"));
    char text[HB_TRACE_ELEMENT_MAX];
    int64_t lane = integer_of(event, "pid");
    size_t len;

    if (!name)
        return 0;
    if (strcmp(name, "process_name") == 0) {
        if (lane == 0)
            take_start(t, r, clock, args);
        else
            rename_lane(r, args);
    }
    if (!place_in_time(r, event) || !place_in_lanes(r, event, args))
        return 0;
    len = json_dumpb(event, text, sizeof(text),
                     JSON_COMPACT | JSON_REAL_PRECISION(DIGITS));
    if (len == 0 || len > sizeof(text))
        return 0;
    hb_trace_file_put(&t->file, text, len);
    return 1;
}

/* ---- Lines ---------------------------------------------------------- */

/* Strips what surrounds an element of the array. */
static void trim(const char **line, size_t *len)
{
    static const char around[] = " \t\r\n,[]";

    while (*len > 0 && memchr(around, **line, sizeof(around) - 1)) {
        ++*line;
        --*len;
    }
    while (*len > 0 && memchr(around, (*line)[*len - 1], sizeof(around) - 1))
        --*len;
}

static void take_line(struct timeline *t, struct timeline_rank *r,
                      const struct offset *clock)
{
    const char *line = r->line;
    size_t len = r->len;
    json_t *event;

    r->len = 0;
    if (len == 0)
        return;
    trim(&line, &len);
    if (len == 0)
        return;
    event = len < TIMELINE_LINE_MAX - 1 ? json_loadb(line, len, 0, NULL) : NULL;
    if (json_is_object(event) && take_event(t, r, clock, event))
        r->events++;
    else
        r->bad++;
    json_decref(event);
}

int timeline_is_cut(const struct timeline_rank *r)
{
    return r->is_cut;
}

/* Counts len bytes: 1, or 0 if they and all later ones are to be left out. */
static int count_bytes(struct timeline *t, struct timeline_rank *r, size_t len)
{
    r->is_cut |= len > t->rank_max - r->bytes || len > t->all_max - t->bytes;
    if (r->is_cut)
        return 0;
    r->bytes += len;
    t->bytes += len;
    return 1;
}

void timeline_feed(struct timeline *t, struct timeline_rank *r,
                   const struct offset *clock, const void *bytes, size_t len)
{
    const char *p = bytes;

    if (!count_bytes(t, r, len))
        return;
    if (!r->line)
        r->line = hb_xmalloc(TIMELINE_LINE_MAX);
    while (len > 0) {
        const char *end = memchr(p, '\n', len);
        size_t part = end ? (size_t)(end - p) : len;
        size_t room = TIMELINE_LINE_MAX - r->len;

        /* A line that does not fit stays too long to be taken. */
        memcpy(r->line + r->len, p, part < room ? part : room);
        r->len += part < room ? part : room;
        if (end)
            take_line(t, r, clock);
        part += end != NULL;
        p += part;
        len -= part;
    }
}

void timeline_end(struct timeline *t, struct timeline_rank *r,
                  const struct offset *clock)
{
    if (!timeline_is_cut(r))
        take_line(t, r, clock);
    timeline_rank_fini(r);
}

void timeline_rank_fini(struct timeline_rank *r)
{
    hb_free(r->line);
    r->line = NULL;
    r->len = 0;
}

/* ---- The file ------------------------------------------------------- */

int timeline_open(struct timeline *t, const char *path, struct hb_error *err)
{
    char text[128];
    int rc = hb_trace_file_open(&t->file, path, err);

    if (rc < 0)
        return rc;
    t->bytes = 0;
    t->rank_max = TIMELINE_RANK_MAX;
    t->all_max = (uint64_t)TIMELINE_ALL_MAX_GIB << 30;
    t->wall_ns = hb_wall_ns();
    t->origin_ns = hb_now_ns();
    snprintf(text, sizeof(text),
             "{\"name\":\"hvdrun\",\"ph\":\"M\",\"pid\":0,\"args\":{"
             "\"start_time_since_epoch_in_micros\":%llu}}",
             (unsigned long long)(t->wall_ns / 1000));
    hb_trace_file_put(&t->file, text, strlen(text));
    hb_trace_file_flush(&t->file);
    return 0;
}

int timeline_flush(struct timeline *t)
{
    hb_trace_file_flush(&t->file);
    return t->file.sys_errno == 0;
}

int timeline_close(struct timeline *t)
{
    return hb_trace_file_close(&t->file);
}
