/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the events of a timeline as text.  By hand, since this is the main
 * cost of a timeline, and printf would be most of it.
 */
#include "runtime/trace/timeline_text.h"

#include "lib/base/text.h"

#include <string.h>

#define KIND(symbol, ...) #symbol
static const char *const kinds[] = {COLLECTIVES_AND_JOIN(KIND)};

/* ---- Pieces --------------------------------------------------------- */

static void put(struct timeline_text *t, const char *s, size_t len)
{
    if (len > sizeof(t->bytes) - t->len)
        len = sizeof(t->bytes) - t->len;
    memcpy(t->bytes + t->len, s, len);
    t->len += len;
}

static void puts_(struct timeline_text *t, const char *s)
{
    put(t, s, strlen(s));
}

static void put_u64(struct timeline_text *t, uint64_t v)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    put(t, digits + at, sizeof(digits) - at);
}

static void put_int(struct timeline_text *t, int v)
{
    if (v < 0)
        put(t, "-", 1);
    put_u64(t, (uint64_t)(v < 0 ? -(int64_t)v : v));
}

/* Writes microseconds with three decimals. */
static void put_us(struct timeline_text *t, uint64_t ns)
{
    char rest[4] = {'.', (char)('0' + ns / 100 % 10),
                    (char)('0' + ns / 10 % 10), (char)('0' + ns % 10)};

    put_u64(t, ns / 1000);
    put(t, rest, sizeof(rest));
}

/* Writes a JSON string; s is UTF-8 without control bytes. */
static void put_quoted(struct timeline_text *t, const char *s)
{
    put(t, "\"", 1);
    while (*s) {
        size_t plain = strcspn(s, "\"\\");

        put(t, s, plain);
        s += plain;
        if (*s) {
            put(t, "\\", 1);
            put(t, s++, 1);
        }
    }
    put(t, "\"", 1);
}

static void put_text_field(struct timeline_text *t, const char *key,
                           const char *value)
{
    puts_(t, key);
    put_quoted(t, value);
}

static void put_field(struct timeline_text *t, const char *key, uint64_t value)
{
    puts_(t, key);
    put_u64(t, value);
}

/* Copies a name that comes from outside, made printable and cut to fit. */
static void clean(char *out, size_t size, const char *s)
{
    size_t len = strnlen(s, size - 1);

    memcpy(out, s, len);
    out[len] = '\0';
    hb_text_trim_cut(out);
    hb_text_sanitize(out);
}

/* ---- Metadata ------------------------------------------------------- */

void timeline_text_start(struct timeline_text *t,
                         const struct timeline_start *s)
{
    char host[HVD__NAME_BYTES];

    clean(host, sizeof(host), s->owner.host ? s->owner.host : "");
    t->len = 0;
    puts_(t, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{"
             "\"name\":\"rank ");
    put_int(t, s->owner.rank);
    put_field(t, "\",\"start_time_since_epoch_in_micros\":", s->wall_ns / 1000);
    put_field(t, ",\"monotonic_base_ns\":", s->monotonic_ns);
    puts_(t, ",\"rank\":");
    put_int(t, s->owner.rank);
    puts_(t, ",\"size\":");
    put_int(t, s->owner.size);
    put_text_field(t, ",\"host\":", host);
    puts_(t, "}}");
}

void timeline_text_lane(struct timeline_text *t, uint32_t lane,
                        const char *name)
{
    char text[TIMELINE_LANE_BYTES];

    clean(text, sizeof(text), name);
    t->len = 0;
    put_field(t, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", lane);
    put_text_field(t, ",\"args\":{\"name\":", text);
    puts_(t, "}}");
}

void timeline_text_order(struct timeline_text *t, uint32_t lane)
{
    t->len = 0;
    put_field(t,
              "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":", lane);
    put_field(t, ",\"args\":{\"sort_index\":", lane);
    puts_(t, "}}");
}

static void put_instant(struct timeline_text *t, const char *name,
                        uint64_t at_ns)
{
    t->len = 0;
    put_text_field(t, "{\"name\":", name);
    puts_(t, ",\"ph\":\"i\",\"s\":\"g\",\"ts\":");
    put_us(t, at_ns);
    puts_(t, ",\"pid\":0,\"tid\":0");
}

void timeline_text_dropped(struct timeline_text *t, uint64_t at_ns,
                           uint64_t records)
{
    put_instant(t, "DROPPED", at_ns);
    put_field(t, ",\"args\":{\"records\":", records);
    puts_(t, "}}");
}

void timeline_text_cycle(struct timeline_text *t, uint64_t at_ns)
{
    put_instant(t, "CYCLE_START", at_ns);
    puts_(t, "}");
}

/* ---- Spans ---------------------------------------------------------- */

static const char *kind_of(const struct timeline_record *r)
{
    if (r->kind == HVD__ALLREDUCE && r->op == HVD_ADASUM)
        return "ADASUM";
    if ((size_t)r->kind < sizeof(kinds) / sizeof(kinds[0]))
        return kinds[r->kind];
    return "OTHER";
}

static void put_args(struct timeline_text *t, const struct timeline_record *r)
{
    puts_(t, ",\"args\":{");
    put_field(t, "\"bytes\":", r->bytes);
    if (r->kind != HVD__BARRIER && r->kind != HVD__JOIN) {
        put_field(t, ",\"count\":", r->count);
        put_text_field(t, ",\"dtype\":", hvd_dtype_name(r->dtype));
    }
    if (collective_reduces(r->kind))
        put_text_field(t, ",\"op\":", hvd_op_name(r->op));
    if (r->plane)
        put_text_field(t, ",\"plane\":", r->plane);
    if (r->algorithm)
        put_text_field(t, ",\"algorithm\":", r->algorithm);
    put_field(t, ",\"fused\":", r->fused);
    if (r->busy_ns) {
        puts_(t, ",\"busy_us\":");
        put_us(t, r->busy_ns);
    }
    if (r->set > 0)
        put_field(t, ",\"process_set\":", (uint64_t)r->set);
    if (r->status < 0)
        put_text_field(t, ",\"error\":", hb_status_name(r->status));
    puts_(t, "}");
}

/* Finds a span's begin and end; 0: there is no such span. */
static int limits(const struct timeline_record *r, enum timeline_span span,
                  uint64_t *from_ns, uint64_t *to_ns)
{
    int asked = r->what == HVD__TIMELINE_REQUEST;
    uint64_t agreed = r->agreed_ns ? r->agreed_ns : r->began_ns;

    switch (span) {
    case TIMELINE_NEGOTIATE:
        *from_ns = asked ? r->issued_ns : 0;
        *to_ns = agreed ? agreed : r->done_ns;
        break;
    case TIMELINE_QUEUE:
        *from_ns = asked ? r->issued_ns : 0;
        *to_ns = r->began_ns;
        break;
    default:
        *from_ns = asked ? agreed : r->began_ns;
        *to_ns = r->done_ns;
        break;
    }
    return *from_ns && *to_ns && *to_ns >= *from_ns;
}

static void put_name(struct timeline_text *t, const struct timeline_record *r,
                     enum timeline_span span)
{
    puts_(t, "{\"name\":\"");
    if (span == TIMELINE_NEGOTIATE)
        puts_(t, "NEGOTIATE_");
    if (span == TIMELINE_QUEUE)
        puts_(t, "QUEUE");
    else if (r->what == HVD__TIMELINE_ACTIVITY)
        puts_(t, r->activity);
    else
        puts_(t, kind_of(r));
}

int timeline_text_span(struct timeline_text *t, const struct timeline_record *r,
                       enum timeline_span span, uint64_t base_ns)
{
    uint64_t from, to;

    if (!limits(r, span, &from, &to))
        return 0;
    /* A request issued before the timeline began, begins with it. */
    from = from > base_ns ? from - base_ns : 0;
    to = to > base_ns ? to - base_ns : 0;
    t->len = 0;
    put_name(t, r, span);
    puts_(t, "\",\"ph\":\"X\",\"ts\":");
    put_us(t, from);
    puts_(t, ",\"dur\":");
    put_us(t, to - from);
    put_field(t, ",\"pid\":", r->lane);
    put_field(t, ",\"tid\":", r->tid);
    if (span == TIMELINE_WORK)
        put_args(t, r);
    puts_(t, "}");
    return 1;
}
