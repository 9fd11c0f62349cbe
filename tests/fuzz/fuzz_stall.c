/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stall inspector with anything that two hosts report of their ranks, at
 * any time and in any order.  No line of a report can drive a terminal, and
 * only the first can be taken for hvdrun's own; the rank that is blamed is one
 * of the job, or none; the job is ended once.
 *
 * The input is a list of steps: a byte for the rank and the event, then the
 * event's arguments.
 */
#include "lib/job/stall/stall_inspector.h"
#include "tests/fuzz/fuzz.h"

#include <limits.h>

enum { HOSTS = 2, RANKS = 4, TEXT_MAX = 40 };

static struct host_entry entries[HOSTS] = {{.name = (char *)"a"},
                                           {.name = (char *)"b"}};
static int ranks_of[RANKS] = {0, 1, 2, 3};
static struct plan_host hosts[HOSTS] = {{&entries[0], 0, &ranks_of[0], 2},
                                        {&entries[1], 1, &ranks_of[2], 2}};
static struct plan_rank ranks[RANKS] = {
    {.rank = 0, .host = 0},
    {.rank = 1, .host = 0},
    {.rank = 2, .host = 1},
    {.rank = 3, .host = 1},
};
static const struct plan plan = {ranks, RANKS, hosts, HOSTS, RANKS, HOSTS};

/* Takes a string; the next byte is its length. */
static void take_text(struct fuzz_input *in, char *text, size_t size)
{
    size_t len = fuzz_take(in) % size, i = 0;

    for (; i < len && in->p < in->end && *in->p; i++)
        text[i] = (char)*in->p++;
    text[i] = '\0';
}

/* ---- What the inspector says ---- */

static int id, ended; /* id: of the latest question; ended: how often the job
                       * was ended */

static void on_ask(void *arg, int host, const struct control_stall_ask *m)
{
    (void)arg;
    FUZZ_CHECK(!ended && host >= 0 && host < HOSTS);
    FUZZ_CHECK(m->count >= 0 && m->count <= CONTROL_STACKS_MAX);
    for (int i = 0; i < m->count; i++) {
        FUZZ_CHECK(m->ranks[i] >= 0 && m->ranks[i] < RANKS);
        FUZZ_CHECK(ranks[m->ranks[i]].host == host);
    }
    id = m->id;
}

static void on_say(void *arg, const char *lines)
{
    (void)arg;
    FUZZ_CHECK(!ended);
    fuzz_check_text(lines);
    FUZZ_CHECK(strncmp(lines, "hvdrun: sta", 11) == 0);
    FUZZ_CHECK(lines[strlen(lines) - 1] == '\n');
    for (const char *p = strchr(lines, '\n') + 1; *p; p = strchr(p, '\n') + 1)
        FUZZ_CHECK(p[0] == ' ' && p[1] == ' ');
}

static void check_why(int rank, const char *why)
{
    FUZZ_CHECK(rank >= -1 && rank < RANKS);
    FUZZ_CHECK(!strchr(why, '\n'));
    fuzz_check_text(why);
}

static void on_blame(void *arg, int rank, const char *why)
{
    (void)arg;
    FUZZ_CHECK(!ended);
    check_why(rank, why);
}

static void on_end(void *arg, int rank, const char *why, const char *verdict)
{
    (void)arg;
    FUZZ_CHECK(!ended++ && *why && *verdict);
    check_why(rank, why);
    check_why(rank, verdict);
}

/* ---- What hosts tell ---- */

static void take_op(struct fuzz_input *in, struct control_stall_op *op)
{
    unsigned how = fuzz_take(in);

    op->kind = (enum status_kind)(how % STATUS_KINDS);
    op->set = (int)(how >> 4 & 3);
    op->where = (enum status_where)(fuzz_take(in) % (STATUS_NOT_REACHED + 1));
    op->key = fuzz_take(in) & 7;
    op->age_ms = (int64_t)fuzz_take(in);
    op->age_ms <<= fuzz_take(in) & 31;
    take_text(in, op->name, sizeof(op->name));
}

static void take_rank(struct fuzz_input *in, struct control_stall_rank *r,
                      int host, struct control_stall_op *waits)
{
    static const char states[] = "RSDTtZX";
    unsigned how = fuzz_take(in), flags = fuzz_take(in);

    r->rank = 2 * host + (int)(how & 1);
    r->pid = how & 2 ? 4711 : 0;
    r->state = states[(how >> 2) % sizeof(states)];
    r->cpu_percent = (int)(how >> 5) * 20 - 1;
    r->in_init = flags & 1;
    r->known = flags >> 1 & 1;
    r->fresh = flags >> 2 & 1;
    r->inside = flags >> 3 & 1;
    r->calls = flags >> 4 & 3;
    r->sets[0] = fuzz_take(in);
    take_op(in, &r->last);
    r->count = (int)(fuzz_take(in) & 3);
    r->total = r->count + (int)(flags >> 6);
    r->waits = waits;
    for (int i = 0; i < r->count; i++)
        take_op(in, &waits[i]);
    for (int i = 0; i < 4; i++) {
        r->launched[i] = fuzz_take(in);
        r->carried_out[i] = fuzz_take(in);
    }
}

static void give_ranks(struct stall *s, const void *p, size_t len, int host,
                       uint64_t now_ns)
{
    struct control_stall_ranks m;
    int own = 1;

    if (control_decode_stall_ranks(p, len, &m, NULL) < 0)
        return;
    for (int i = 0; i < m.count; i++)
        own &= m.ranks[i].rank < RANKS && ranks[m.ranks[i].rank].host == host;
    if (own)
        stall_ranks(s, host, &m, now_ns);
    control_stall_ranks_fini(&m);
}

static void tell_ranks(struct stall *s, struct fuzz_input *in, int host,
                       uint64_t now_ns)
{
    struct control_stall_op waits[3][4];
    struct control_stall_rank told[3];
    struct control_stall_ranks m = {.ranks = told};
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    memset(waits, 0, sizeof(waits));
    memset(told, 0, sizeof(told));
    m.id = id;
    m.count = 1 + (int)(fuzz_take(in) % 3);
    for (int i = 0; i < m.count; i++)
        take_rank(in, &told[i], host, waits[i]);
    FUZZ_CHECK(control_encode_stall_ranks(&b, &m) == 0);
    FUZZ_CHECK(frame_decode(&b, FRAME_PAYLOAD_MAX, &f, NULL) == 1);
    give_ranks(s, f.payload, f.len, host, now_ns);
    hb_buf_free(&b);
}

static void tell_stack(struct stall *s, struct fuzz_input *in, int rank,
                       uint64_t now_ns)
{
    struct control_stall_stack m = {.id = id, .rank = rank};
    char text[TEXT_MAX];

    m.found = (int)(fuzz_take(in) & 1);
    take_text(in, text, sizeof(text));
    m.text = fuzz_string(text, strlen(text));
    stall_stack(s, &m, now_ns);
    control_stall_stack_fini(&m);
}

static void tell_wait(struct stall *s, struct fuzz_input *in, int rank,
                      uint64_t now_ns)
{
    struct control_stalled m = {.rank = rank};

    m.waited_ms = fuzz_take(in);
    m.waited_ms <<= fuzz_take(in) & 15;
    m.warning_ms = fuzz_take(in) * 4;
    m.shutdown_ms = fuzz_take(in) * 16;
    stall_told(s, &m, now_ns);
}

static void step(struct stall *s, struct fuzz_input *in, uint64_t *now_ns)
{
    unsigned what = fuzz_take(in);
    int rank = (int)(what & 3);

    switch (what >> 2 & 7) {
    case 0:
        tell_wait(s, in, rank, *now_ns);
        break;
    case 1:
        tell_ranks(s, in, rank / 2, *now_ns);
        break;
    case 2:
        tell_stack(s, in, rank, *now_ns);
        break;
    case 3:
        stall_late(s, fuzz_take(in) * 100, *now_ns);
        break;
    case 4:
        stall_rank_gone(s, rank, *now_ns);
        break;
    case 5:
        stall_resumed(s, *now_ns);
        break;
    case 6:
        if (stall_next_ns(s) > *now_ns)
            *now_ns = stall_next_ns(s);
        stall_tick(s, *now_ns);
        break;
    default:
        give_ranks(s, in->p, (size_t)(in->end - in->p), rank / 2, *now_ns);
        in->p = in->end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    const struct stall_config config = {.plan = &plan,
                                        .start_ms = size & 1 ? 500 : 0,
                                        .ask = on_ask,
                                        .say = on_say,
                                        .blame = on_blame,
                                        .end = on_end};
    uint64_t now_ns = (uint64_t)1 << 40;
    struct stall *s = stall_new(&config);

    id = ended = 0;
    while (in.p < in.end)
        step(s, &in, &now_ns);
    /* Answers may never come. */
    for (int i = 0; i < 8 && stall_next_ns(s); i++)
        stall_tick(s, stall_next_ns(s));
    stall_free(s);
    return 0;
}
