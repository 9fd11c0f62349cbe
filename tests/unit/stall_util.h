/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stall inspector for tests: four ranks on two hosts, the questions to their
 * agents, the answers, and the reports.
 */
#ifndef TESTS_UNIT_STALL_UTIL_H
#define TESTS_UNIT_STALL_UTIL_H

#include "lib/job/stall/stall_inspector.h"
#include "tests/unit/unit.h"

#include "lib/base/buf.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 4, HOSTS = 2, KEY = 77 };

static const uint64_t ms = 1000000, start_ns = 5000 * 1000000ull;

/* Two ranks on each of two hosts. */
static struct host_entry entries[HOSTS] = {{.name = (char *)"n0"},
                                           {.name = (char *)"n1"}};
static int rank_lists[HOSTS][2] = {{0, 1}, {2, 3}};
static struct plan_host hosts[HOSTS] = {{&entries[0], 0, rank_lists[0], 2},
                                        {&entries[1], 1, rank_lists[1], 2}};
static struct plan_rank ranks[RANKS] = {
    {.rank = 0}, {.rank = 1}, {.rank = 2, .host = 1}, {.rank = 3, .host = 1}};
static const struct plan plan = {ranks, RANKS, hosts, HOSTS, RANKS, HOSTS};

static struct hb_buf said;
static struct control_stall_ask asked[HOSTS];
static int asks, ends, end_rank, blamed;
/* Ranks that were evicted, as bits; whether that may be done. */
static unsigned evicted;
static int may_evict;
static char end_why[512], end_verdict[512], blame_why[512];
static struct stall *s;

static inline void on_ask(void *arg, int host,
                          const struct control_stall_ask *m)
{
    (void)arg;
    asked[host] = *m;
    asks++;
}

static inline void on_say(void *arg, const char *lines)
{
    (void)arg;
    hb_must(hb_buf_puts(&said, lines));
}

static inline void on_blame(void *arg, int rank, const char *why)
{
    (void)arg;
    blamed = rank;
    snprintf(blame_why, sizeof(blame_why), "%s", why);
}

static inline void on_end(void *arg, int rank, const char *why,
                          const char *verdict)
{
    (void)arg;
    ends++;
    end_rank = rank;
    snprintf(end_why, sizeof(end_why), "%s", why);
    snprintf(end_verdict, sizeof(end_verdict), "%s", verdict);
}

static inline int on_evict(void *arg, const int *which, int count,
                           int64_t waited_ms)
{
    (void)arg;
    ck_assert_int_ge(waited_ms, 0);
    for (int i = 0; i < count; i++)
        evicted |= may_evict ? 1u << which[i] : 0;
    return may_evict;
}

static inline void make_stall(int64_t start_ms)
{
    const struct stall_config config = {.plan = &plan,
                                        .start_ms = start_ms,
                                        .ask = on_ask,
                                        .say = on_say,
                                        .blame = on_blame,
                                        .end = on_end};

    s = stall_new(&config);
}

static inline void setup(void)
{
    memset(asked, 0, sizeof(asked));
    asks = ends = 0;
    end_rank = -1;
    blamed = RANKS;
    evicted = 0;
    may_evict = 1;
    hb_buf_clear(&said);
    make_stall(0);
}

static inline void teardown(void)
{
    stall_free(s);
    hb_buf_free(&said);
}

/* Reports that a rank has waited `waited_ms` at now_ms; warning 1 s, shutdown 3
 * s. */
static inline void told(int rank, uint32_t waited_ms, uint64_t now_ms)
{
    const struct control_stalled m = {rank, waited_ms, 1000, 3000};

    stall_told(s, &m, start_ns + now_ms * ms);
}

static inline void set_rank(struct control_stall_rank *r, int rank)
{
    *r = (struct control_stall_rank){
        .rank = rank,
        .pid = 100 + rank,
        .state = 'S',
        .known = 1,
        .fresh = 1,
        .calls = 9,
        .sets = {1},
        .last = {.kind = STATUS_BARRIER, .age_ms = 2500}};
}

/* Adds an operation that the rank waits for. */
static inline void add_wait(struct control_stall_rank *r, enum status_kind kind,
                            uint64_t key, const char *name, int64_t age_ms)
{
    if (!r->waits)
        r->waits = hb_xcalloc(STATUS_WAITS_MAX, sizeof(*r->waits));
    r->waits[r->count] =
        (struct control_stall_op){.age_ms = age_ms, .key = key, .kind = kind};
    snprintf(r->waits[r->count].name, STATUS_NAME_BYTES, "%s", name);
    r->count++;
    r->total++;
}

/* The answer of a host's agent to the last question. */
static struct control_stall_ranks answer[HOSTS];

static inline void make_answers(void)
{
    for (int h = 0; h < HOSTS; h++) {
        answer[h].id = asked[h].id;
        answer[h].count = 2;
        answer[h].ranks = hb_xcalloc(2, sizeof(*answer[h].ranks));
        for (int i = 0; i < 2; i++)
            set_rank(&answer[h].ranks[i], 2 * h + i);
    }
}

static inline struct control_stall_rank *of(int rank)
{
    return &answer[rank / 2].ranks[rank % 2];
}

static inline void send_answer(int host, uint64_t now_ms)
{
    stall_ranks(s, host, &answer[host], start_ns + now_ms * ms);
    control_stall_ranks_fini(&answer[host]);
}

static inline void send_stack(int rank, int found, const char *text,
                              uint64_t now_ms)
{
    struct control_stall_stack m = {.id = asked[0].id,
                                    .rank = rank,
                                    .found = found,
                                    .text = hb_xstrdup(text)};

    stall_stack(s, &m, start_ns + now_ms * ms);
    control_stall_stack_fini(&m);
}

static inline void expect_said(const char *part)
{
    ck_assert_msg(strstr(hb_buf_data(&said), part) != NULL, "no \"%s\" in:\n%s",
                  part, hb_buf_data(&said));
}

static inline void expect_next(uint64_t now_ms)
{
    ck_assert_uint_eq(stall_next_ns(s), start_ns + now_ms * ms);
}

static inline void ask_and_answer(void)
{
    send_answer(0, 100);
    send_answer(1, 100);
    stall_tick(s, stall_next_ns(s)); /* no stacks come */
}

static inline void expect_blamed(int rank, const char *why)
{
    ck_assert_int_eq(blamed, rank);
    ck_assert_str_eq(blame_why, why);
}

static inline void expect_not_said(const char *part)
{
    ck_assert_msg(strstr(hb_buf_data(&said), part) == NULL, "\"%s\" in:\n%s",
                  part, hb_buf_data(&said));
}

#endif
