/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of the stall inspector; see stall.h. */
#include "lib/job/stall/stall_inspector.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/output/xbuf.h"
#include "lib/job/stall/stall_report.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const uint64_t ns_per_ms = 1000000;

enum phase {
    QUIET,  /* no rank waits, or it is too early to report */
    RANKS,  /* agents were asked where their ranks are */
    STACKS, /* and for the suspects' stacks */
    ENDED,  /* the job is over because of it */
};

/* What a rank has reported. */
struct teller {
    uint64_t since_ns; /* when its wait began; 0: it does not wait */
    uint32_t warning_ms, shutdown_ms;
};

struct stall {
    struct stall_config config;
    struct teller *tellers; /* [size] */
    int waiting;            /* number of ranks that wait */
    /* the ranks were stopped until then: no wait is older */
    uint64_t floor_ns;

    enum phase phase;
    int id; /* of the current question */
    uint64_t phase_ends_ns;
    unsigned char *answered; /* [hosts] */
    unsigned char *gone;     /* [size] ranks that have ended */
    unsigned char *outside;  /* [size] ranks that are not in the world */
    char *no_answer;         /* see stall_no_answer */
    uint64_t no_answer_ns;   /* when it came */
    struct stall_view view;  /* of the report in progress */

    int has_evicted;      /* with the report in progress */
    int reports;          /* since a rank began to wait */
    uint64_t warning_ns;  /* when the next one is due; 0: never */
    uint64_t shutdown_ns; /* when the job is to end; 0: never */
    uint64_t
        deserted_ns; /* when to look for ranks left in hvd_init; 0: never */
};

struct stall *stall_new(const struct stall_config *config)
{
    struct stall *s = hb_xcalloc(1, sizeof(*s));
    size_t size = (size_t)config->plan->size;

    s->config = *config;
    s->tellers = hb_xcalloc(size, sizeof(*s->tellers));
    s->answered = hb_xcalloc((size_t)config->plan->host_cap, 1);
    s->view.plan = config->plan;
    s->gone = hb_xcalloc(size, 1);
    s->view.answered = s->answered;
    s->view.gone = s->gone;
    s->outside = hb_xcalloc(size, 1);
    s->view.outside = s->outside;
    return s;
}

static void forget_view(struct stall *s)
{
    stall_view_fini(&s->view);
    for (int i = 0; s->view.ranks && i < s->config.plan->size; i++)
        hb_free(s->view.ranks[i].waits);
    hb_free(s->view.ranks);
    s->view.ranks = NULL;
}

void stall_free(struct stall *s)
{
    if (!s)
        return;
    forget_view(s);
    hb_free(s->tellers);
    hb_free(s->answered);
    hb_free(s->gone);
    hb_free(s->outside);
    hb_free(s->no_answer);
    hb_free(s);
}

/* ---- When ------------------------------------------------------------------
 */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* Sets when to report and when to end the job: the earliest time that any
 * waiting rank asks for, because the ranks' environments may differ. */
static void plan_times(struct stall *s)
{
    s->shutdown_ns = 0;
    if (s->reports == 0)
        s->warning_ns = 0;
    for (int i = 0; i < s->config.plan->size; i++) {
        const struct teller *t = &s->tellers[i];

        if (!t->since_ns)
            continue;
        if (t->shutdown_ms)
            s->shutdown_ns = earlier(s->shutdown_ns,
                                     t->since_ns + t->shutdown_ms * ns_per_ms);
        if (t->warning_ms && s->reports == 0)
            s->warning_ns =
                earlier(s->warning_ns, t->since_ns + t->warning_ms * ns_per_ms);
    }
}

/* Plans the next report for when the wait is twice as long as in the last
 * one. */
static void plan_next_report(struct stall *s, uint64_t now_ns)
{
    s->reports++;
    s->warning_ns = now_ns + (uint64_t)s->view.waited_ms * ns_per_ms;
}

/* Returns when to look for ranks to evict, or to end the job; 0: never. */
static uint64_t look_ns(const struct stall *s)
{
    uint64_t lead_ns = STALL_EVICT_LEAD_MS * ns_per_ms;

    return s->config.evict && s->shutdown_ns > lead_ns
               ? s->shutdown_ns - lead_ns
               : s->shutdown_ns;
}

uint64_t stall_next_ns(const struct stall *s)
{
    if (s->phase == ENDED)
        return 0;
    if (s->phase == STACKS && s->waiting && s->shutdown_ns)
        return earlier(s->phase_ends_ns,
                       s->shutdown_ns +
                           (s->config.evict ? 0 : STALL_STACKS_LAST_MS) *
                               ns_per_ms);
    if (s->phase != QUIET)
        return s->phase_ends_ns;
    if (!s->waiting)
        return s->deserted_ns;
    return earlier(s->deserted_ns, earlier(s->warning_ns, look_ns(s)));
}

static int is_last(const struct stall *s, uint64_t now_ns)
{
    uint64_t early_ns = s->config.evict ? STALL_EVICT_EARLY_MS * ns_per_ms : 0;

    return s->view.start || (s->waiting && s->shutdown_ns &&
                             now_ns + early_ns >= s->shutdown_ns);
}

/* ---- The report
 * ---------------------------------------------------------------- */

static void count_waits(struct stall *s, uint64_t now_ns)
{
    uint64_t longest_ns = 0;

    for (int i = 0; i < s->config.plan->size; i++) {
        uint64_t since = s->tellers[i].since_ns;

        if (since && now_ns > since && now_ns - since > longest_ns)
            longest_ns = now_ns - since;
    }
    if (s->view.start)
        return;
    s->view.stalled = s->waiting;
    s->view.waited_ms = (int64_t)(longest_ns / ns_per_ms);
}

static void end_job(struct stall *s)
{
    struct hb_buf why = HB_BUF_INIT;
    char verdict[160];
    int rank = stall_view_blame(&why, &s->view);

    snprintf(verdict, sizeof(verdict),
             "ranks waited for others for %.4g s, longer than "
             "HVD_STALL_SHUTDOWN_TIME_SECONDS allows",
             (double)s->view.waited_ms / 1e3);
    if (s->view.start == STALL_DESERTED)
        snprintf(verdict, sizeof(verdict),
                 "the ranks that are left were stopped in hvd_init for %.4g s, "
                 "longer than --start-timeout allows",
                 (double)s->view.waited_ms / 1e3);
    else if (s->view.start)
        snprintf(verdict, sizeof(verdict),
                 "ranks waited in hvd_init for %.4g s, longer than "
                 "--start-timeout (HVD_START_TIMEOUT) allows",
                 (double)s->view.waited_ms / 1e3);
    s->phase = ENDED;
    s->config.end(s->config.arg, rank, hb_buf_data(&why), verdict);
    hb_buf_free(&why);
}

/* Counts all waits from now. */
static void begin_waits_anew(struct stall *s, uint64_t now_ns)
{
    s->floor_ns = now_ns;
    for (int i = 0; i < s->config.plan->size; i++)
        if (s->tellers[i].since_ns)
            s->tellers[i].since_ns = now_ns;
    plan_times(s);
}

/* Counts the ranks that are in the world and have not ended. */
static int count_members(const struct stall *s)
{
    int count = 0;

    for (int i = 0; i < s->config.plan->size; i++)
        count += !s->gone[i] && !s->outside[i];
    return count;
}

/* Kills the ranks that hang, by config.evict, if the others can go on without
 * them: 1, or 0. */
static int evict(struct stall *s)
{
    const struct stall_view *v = &s->view;
    int ranks[STALL_SUSPECTS_MAX];

    if (!s->config.evict || v->start || v->hanging == 0 ||
        v->hanging == count_members(s) || v->suspects_left_out)
        return 0;
    for (int i = 0; i < v->hanging; i++) {
        ranks[i] = v->suspects[i].rank;
        if (!v->ranks[ranks[i]].pid)
            return 0; /* its agent does not answer */
    }
    if (!s->config.evict(s->config.arg, ranks, v->hanging, v->waited_ms))
        return 0;
    s->has_evicted = 1;
    return 1;
}

static void report(struct stall *s, uint64_t now_ns)
{
    struct hb_buf text = HB_BUF_INIT;
    int last = is_last(s, now_ns);

    s->phase = QUIET;
    if (s->waiting || last) {
        stall_view_format(&text, &s->view);
        s->config.say(s->config.arg, hb_buf_data(&text));
        count_waits(s, now_ns);
        plan_next_report(s, now_ns);
    }
    hb_buf_free(&text);
    if (last && !s->has_evicted && !evict(s))
        end_job(s);
    if (s->has_evicted)
        begin_waits_anew(s, now_ns);
    s->has_evicted = 0;
    forget_view(s);
}

/* ---- Asking
 * -------------------------------------------------------------------- */

static int has_live_ranks(const struct stall *s, int host)
{
    const struct plan_host *h = &s->config.plan->hosts[host];

    for (int i = 0; i < h->count; i++)
        if (!s->gone[h->ranks[i]])
            return 1;
    return 0;
}

/* Asks all agents, except those whose ranks have all ended: they are done and
 * do not answer. */
static void ask_ranks(struct stall *s, uint64_t now_ns)
{
    struct control_stall_ask m = {.count = 0};
    int hosts = s->config.plan->host_count;

    s->id = s->id == INT_MAX ? 1 : s->id + 1;
    m.id = s->id;
    s->phase = RANKS;
    s->phase_ends_ns = now_ns + STALL_RANKS_MS * ns_per_ms;
    s->view.ranks =
        hb_xcalloc((size_t)s->config.plan->size, sizeof(*s->view.ranks));
    for (int i = 0; i < hosts; i++) {
        s->answered[i] = !has_live_ranks(s, i);
        if (!s->answered[i])
            s->config.ask(s->config.arg, i, &m);
    }
}

static int stacks_missing(const struct stall *s)
{
    int missing = 0;

    for (int i = 0; i < s->view.suspect_count; i++)
        missing += s->view.suspects[i].stack == NULL;
    return missing;
}

static void ask_host_for_stacks(struct stall *s, int host)
{
    const struct plan *plan = s->config.plan;
    struct control_stall_ask m = {.id = s->id};

    for (int i = 0; i < s->view.suspect_count; i++) {
        int rank = s->view.suspects[i].rank;

        if (plan->ranks[rank].host == host && s->view.ranks[rank].pid)
            m.ranks[m.count++] = rank;
    }
    if (m.count)
        s->config.ask(s->config.arg, host, &m);
}

static void blame(struct stall *s)
{
    struct hb_buf why = HB_BUF_INIT;
    int rank = stall_view_blame(&why, &s->view);

    s->config.blame(s->config.arg, rank, hb_buf_data(&why));
    hb_buf_free(&why);
}

/* Checks whether the remaining ranks are stuck in hvd_init: then the job
 * ends. */
static void look_for_deserted(struct stall *s, uint64_t now_ns)
{
    int heard = 1;

    for (int i = 0; i < s->config.plan->host_count; i++)
        heard &= s->answered[i];
    s->deserted_ns = 0;
    if (s->view.start)
        return;
    if (!stall_view_is_deserted(&s->view)) {
        /* A host did not answer in time: the ranks are asked again. */
        if (!heard)
            s->deserted_ns = now_ns + STALL_AGAIN_MS * ns_per_ms;
        return;
    }
    s->view.start = STALL_DESERTED;
    s->view.waited_ms = s->config.start_ms;
}

static void ask_stacks(struct stall *s, uint64_t now_ns)
{
    int limit_ms;

    if (s->deserted_ns && now_ns >= s->deserted_ns)
        look_for_deserted(s, now_ns);
    if (!s->waiting && !s->view.start) {
        s->phase = QUIET;
        forget_view(s);
        return;
    }
    limit_ms = is_last(s, now_ns) ? STALL_STACKS_LAST_MS : STALL_STACKS_MS;
    count_waits(s, now_ns);
    stall_view_find(&s->view);
    if (s->waiting && !s->view.start)
        blame(s);
    if (is_last(s, now_ns) && evict(s)) {
        for (int i = 0; i < s->view.suspect_count; i++)
            s->view.suspects[i].stack = hb_xstrdup("it is killed at once");
        report(s, now_ns);
        return;
    }
    s->phase = STACKS;
    s->phase_ends_ns = now_ns + (uint64_t)limit_ms * ns_per_ms;
    for (int i = 0; i < s->config.plan->host_count; i++)
        if (s->answered[i])
            ask_host_for_stacks(s, i);
    for (int i = 0; i < s->view.suspect_count; i++)
        if (!s->view.ranks[s->view.suspects[i].rank].pid)
            s->view.suspects[i].stack = hb_xstrdup("its agent did not answer");
    if (!stacks_missing(s))
        report(s, now_ns);
}

void stall_tick(struct stall *s, uint64_t now_ns)
{
    uint64_t next_ns = stall_next_ns(s);

    if (!next_ns || now_ns < next_ns)
        return;
    if (s->phase == QUIET)
        ask_ranks(s, now_ns);
    else if (s->phase == RANKS)
        ask_stacks(s, now_ns);
    else
        report(s, now_ns);
}

/* ---- What is heard
 * ------------------------------------------------------------- */

/* Notes when the rank began to wait (0: it does not), and whether any wait is
 * left. */
static void set_teller(struct stall *s, int rank, uint64_t since_ns,
                       uint64_t now_ns)
{
    struct teller *t = &s->tellers[rank];

    s->waiting += (since_ns != 0) - (t->since_ns != 0);
    t->since_ns = since_ns;
    if (s->waiting == 0 && s->reports > 0 && s->phase != ENDED) {
        s->config.say(s->config.arg,
                      "hvdrun: stall: over, no rank waits any more\n");
        s->config.blame(s->config.arg, -1, "");
        s->reports = 0;
    }
    plan_times(s);
    stall_tick(s, now_ns);
}

void stall_told(struct stall *s, const struct control_stalled *m,
                uint64_t now_ns)
{
    struct teller *t = &s->tellers[m->rank];
    uint64_t waited_ns = m->waited_ms * ns_per_ms, since_ns = 0;

    if (m->waited_ms) {
        since_ns = waited_ns < now_ns ? now_ns - waited_ns : 1;
        if (since_ns < s->floor_ns)
            since_ns = s->floor_ns;
        t->warning_ms = m->warning_ms;
        t->shutdown_ms = m->shutdown_ms;
    }
    set_teller(s, m->rank, since_ns, now_ns);
}

void stall_late(struct stall *s, uint32_t waited_ms, uint64_t now_ns)
{
    if (s->phase == ENDED || s->view.start)
        return;
    /* The report in progress has other suspects: it is dropped, and the ranks
     * are asked again. */
    if (s->phase == STACKS) {
        s->phase = QUIET;
        forget_view(s);
    }
    s->view.start = STALL_LATE;
    s->view.waited_ms = waited_ms;
    /* An earlier message was about another wait. */
    if (s->no_answer && now_ns - s->no_answer_ns <= waited_ms * ns_per_ms)
        s->view.no_answer = s->no_answer;
    if (s->phase == QUIET)
        ask_ranks(s, now_ns);
}

void stall_no_answer(struct stall *s, const char *text, uint64_t now_ns)
{
    hb_free(s->no_answer);
    s->no_answer = hb_xstrdup(text);
    s->no_answer_ns = now_ns;
}

void stall_rank_gone(struct stall *s, int rank, uint64_t now_ns)
{
    s->gone[rank] = 1;
    if (s->config.start_ms)
        s->deserted_ns = now_ns + (uint64_t)s->config.start_ms * ns_per_ms;
    if (s->tellers[rank].since_ns)
        set_teller(s, rank, 0, now_ns);
}

void stall_absent(struct stall *s, int rank)
{
    s->gone[rank] = 1;
}

void stall_members(struct stall *s, const int *ranks, int count)
{
    memset(s->outside, 1, (size_t)s->config.plan->size);
    for (int i = 0; i < count; i++)
        s->outside[ranks[i]] = s->gone[ranks[i]] = 0;
}

void stall_resumed(struct stall *s, uint64_t now_ns)
{
    begin_waits_anew(s, now_ns);
}

static void take_rank(struct stall *s, struct control_stall_rank *r)
{
    hb_text_sanitize(r->last.name);
    for (int i = 0; i < r->count; i++)
        hb_text_sanitize(r->waits[i].name);
    s->view.ranks[r->rank] = *r;
    r->waits = NULL;
    r->count = 0;
}

void stall_ranks(struct stall *s, int host, struct control_stall_ranks *m,
                 uint64_t now_ns)
{
    int hosts = s->config.plan->host_count, heard = 0;

    if (s->phase != RANKS || m->id != s->id || s->answered[host])
        return;
    s->answered[host] = 1;
    for (int i = 0; i < m->count; i++)
        take_rank(s, &m->ranks[i]);
    for (int i = 0; i < hosts; i++)
        heard += s->answered[i];
    if (heard == hosts)
        ask_stacks(s, now_ns);
}

static void sanitize_lines(char *text)
{
    for (char *p = text; *p;) {
        char *newline = strchr(p, '\n');

        if (newline)
            *newline = '\0';
        hb_text_sanitize(p);
        if (!newline)
            return;
        *newline = '\n';
        p = newline + 1;
    }
}

void stall_stack(struct stall *s, struct control_stall_stack *m,
                 uint64_t now_ns)
{
    if (s->phase != STACKS || m->id != s->id)
        return;
    for (int i = 0; i < s->view.suspect_count; i++) {
        struct stall_suspect *one = &s->view.suspects[i];

        if (one->rank != m->rank || one->stack)
            continue;
        sanitize_lines(m->text);
        one->stack = m->text;
        one->found = m->found;
        m->text = NULL;
    }
    if (!stacks_missing(s))
        report(s, now_ns);
}
