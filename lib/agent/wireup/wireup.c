/* SPDX-License-Identifier: Apache-2.0 */
/* The wire-up; see wireup.h. */
#include "lib/agent/wireup/wireup.h"

#include "lib/agent/wireup/pmi1/pmi1.h"
#include "lib/agent/wireup/pmix/pmix.h"
#include "lib/agent/wireup/program_needs.h"
#include "lib/agent/wireup/wireup_hosts.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* By enum control_wireup; NULL: none. */
static const struct wireup_kind *const kinds[] = {
    [CONTROL_WIREUP_PMIX] = &wireup_pmix,
    [CONTROL_WIREUP_PMI1] = &wireup_pmi1,
    [CONTROL_WIREUP_NONE] = NULL,
};
enum {
    KINDS = sizeof(kinds) / sizeof(kinds[0]),
    DEATH_MS = 5000, /* of a helper that was killed */
};

/* Returns whether ranks are wired up at all. */
static int is_used(const struct wireup *w)
{
    return w->kind && !w->without;
}

static int rank_of(const struct wireup *w, int slot)
{
    return w->config.job->ranks[slot].rank;
}

/* ---- Hosts that differ ---- */

/* Tells the other hosts what this one has chosen by itself: where the program
 * was found to need another kind, ranks would wait for these in MPI_Init.  Of
 * two kinds, one tells the other: one line suffices. */
static void tell_choice(const struct wireup_config *config,
                        const struct wireup_kind *chosen)
{
    for (int i = 0; i < KINDS; i++) {
        if (!kinds[i])
            continue;
        if (kinds[i] == chosen)
            return;
        if (chosen)
            wireup_tell_hosts(
                config, kinds[i],
                "host %.100s uses --wireup %s, this host %s: install "
                "the same program on both",
                config->job->host, chosen->name, kinds[i]->name);
        else
            wireup_tell_hosts(
                config, kinds[i],
                "host %.100s found no MPI in the program: install the "
                "same program there, or say --wireup %s",
                config->job->host, kinds[i]->name);
    }
}

static void check_lone_host(struct wireup *w);

static void on_without(void *arg, const struct rdv_reply *m)
{
    struct wireup *w = arg;

    w->watch = 0;
    if (m->status)
        return;
    w->lone_host =
        hb_xasprintf("%.*s", m->len < WIREUP_HOSTS_TEXT_BYTES ? (int)m->len : 0,
                     (const char *)m->value);
    hb_text_sanitize(w->lone_host);
    check_lone_host(w);
}

/* Waits for a host that goes without. */
static void watch_hosts(struct wireup *w)
{
    if (w->optional)
        w->watch = wireup_watch_hosts(&w->config, w->kind, on_without, w);
}

static void stop_watching(struct wireup *w)
{
    if (w->watch)
        relay_own_cancel(w->config.relay, w->watch);
    w->watch = 0;
}

/* Lets the ranks run without the kind that their program was thought to need:
 * nobody has asked for it.  Ranks of other hosts, which would wait for these in
 * MPI_Init, are told. */
static void go_without(struct wireup *w, const struct hb_error *err)
{
    hb_log(w->config.log, HB_LOG_WARNING,
           "%s; without it each rank may be a job of one rank for MPI",
           err->text);
    w->without = 1;
    stop_watching(w);
    wireup_tell_hosts(&w->config, w->kind,
                      "host %.100s runs its ranks without --wireup %s",
                      w->config.job->host, w->kind->name);
}

/* ---- Opening ---- */

/* Returns the kind to use, and in *found what is known of the program. */
static enum control_wireup choose(const struct wireup_config *config,
                                  const char *program,
                                  struct program_needs_result *found)
{
    static const enum control_wireup by_need[] = {
        [NEED_NOTHING] = CONTROL_WIREUP_NONE,
        [NEED_PMIX] = CONTROL_WIREUP_PMIX,
        [NEED_PMI1] = CONTROL_WIREUP_PMI1,
    };
    const struct control_launch *job = config->job;
    const struct program_needs_config look = {
        .root = "",
        .program = program,
        .argv = job->argv.items,
        .cwd = job->cwd,
        .env = &job->env,
        .rank_env = &job->ranks[0].env,
    };
    enum control_wireup asked = job->spec.wireup;

    memset(found, 0, sizeof(*found));
    /* For PMIx its library must be known, too. */
    if (asked == CONTROL_WIREUP_AUTO || asked == CONTROL_WIREUP_PMIX)
        program_needs(&look, found);
    return asked == CONTROL_WIREUP_AUTO ? by_need[found->need] : asked;
}

static void log_choice(const struct wireup_config *config,
                       const struct wireup_kind *kind,
                       const struct program_needs_result *found)
{
    int is_found = config->job->spec.wireup == CONTROL_WIREUP_AUTO;

    hb_log(config->log, HB_LOG_INFO, "wire-up of MPI: %s (%s)%s%s", kind->name,
           is_found ? found->reason : "given by --wireup",
           found->pmix ? "; its PMIx is " : "", found->pmix ? found->pmix : "");
}

static int open_choice(struct wireup *w, const struct wireup_config *config,
                       enum control_wireup choice,
                       const struct program_needs_result *found,
                       struct hb_error *err)
{
    const struct wireup_kind *kind = (int)choice < KINDS ? kinds[choice] : NULL;
    struct wireup_config c = *config;

    c.library = found->library;
    c.pmix = found->pmix;
    if (kind)
        log_choice(config, kind, found);
    if (!kind && choice != CONTROL_WIREUP_NONE)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "this agent lacks that kind of --wireup; use "
                            "another one, or a newer hvdrun");
    if (config->job->spec.wireup == CONTROL_WIREUP_AUTO)
        tell_choice(config, kind);
    return kind ? wireup_open_kind(w, &c, kind, err) : WIREUP_NOW;
}

/* Refuses an MPI program in an elastic job: none of its ranks could go on when
 * another has died. */
static int check_elastic(const struct wireup_config *config,
                         enum control_wireup choice, struct hb_error *err)
{
    if (!config->job->spec.elastic ||
        (choice != CONTROL_WIREUP_PMIX && choice != CONTROL_WIREUP_PMI1))
        return 0;
    return hb_error_set(err, HVD_EUNSUPPORTED,
                        "this is an MPI program, which cannot go on without a "
                        "rank, so its job cannot be elastic: leave out "
                        "--min-np and --restart-failed; --wireup none if it "
                        "does not use MPI");
}

int wireup_open(struct wireup *w, const struct wireup_config *config,
                const char *program, struct hb_error *err)
{
    struct program_needs_result found;
    enum control_wireup choice;
    int rc;

    memset(w, 0, sizeof(*w));
    choice = choose(config, program, &found);
    rc = check_elastic(config, choice, err);
    if (rc == 0)
        rc = open_choice(w, config, choice, &found, err);
    w->config.library = w->config.pmix = NULL;
    program_needs_free(&found);
    return rc;
}

static void on_limit(uv_timer_t *timer);
static void on_doom(uv_timer_t *timer);

static void init_slots(struct wireup *w)
{
    w->left = w->config.job->rank_count;
    w->slots = hb_xcalloc((size_t)w->left, sizeof(*w->slots));
    uv_timer_init(w->config.loop, &w->limit);
    uv_timer_init(w->config.loop, &w->doom);
    w->limit.data = w->doom.data = w;
    w->timers = 1;
}

int wireup_open_kind(struct wireup *w, const struct wireup_config *config,
                     const struct wireup_kind *kind, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    int rc;

    memset(w, 0, sizeof(*w));
    w->config = *config;
    w->kind = kind;
    w->optional = config->job->spec.wireup == CONTROL_WIREUP_AUTO;
    init_slots(w);
    w->phase = WIREUP_OPENING;
    rc = kind->open(w, &why);
    if (rc == WIREUP_LATER)
        uv_timer_start(&w->limit, on_limit, (uint64_t)kind->open_ms, 0);
    else
        w->phase = rc < 0 ? WIREUP_CLOSED : WIREUP_OPEN;
    if (rc >= 0) {
        watch_hosts(w);
        return rc;
    }
    hb_error_context(&why, "--wireup %s", kind->name);
    if (w->optional) {
        go_without(w, &why);
        return WIREUP_NOW;
    }
    if (err)
        *err = why;
    return rc;
}

void wireup_opened(struct wireup *w, const struct hb_error *err)
{
    if (w->phase != WIREUP_OPENING)
        return;
    uv_timer_stop(&w->limit);
    w->phase = err ? WIREUP_CLOSED : WIREUP_OPEN;
    if (err && w->optional) {
        go_without(w, err);
        err = NULL;
    }
    w->config.events->on_open(w->config.arg, err);
}

static void open_too_late(struct wireup *w)
{
    struct hb_error err = HB_ERROR_INIT;

    hb_error_set(&err, HVD_ETIMEOUT,
                 "--wireup %s: its server was not ready after %g s; is this "
                 "host overloaded?",
                 w->kind->name, w->kind->open_ms / 1e3);
    w->phase = WIREUP_OPEN; /* to be closed */
    if (w->optional)
        go_without(w, &err);
    w->config.events->on_open(w->config.arg, w->optional ? NULL : &err);
}

/* ---- Starting ranks ---- */

void wireup_environment(struct wireup *w, int slot, struct hb_strv *out)
{
    if (is_used(w))
        w->kind->environment(w, slot, out);
}

int wireup_descriptor(struct wireup *w, int slot, int *fd, struct hb_error *err)
{
    *fd = -1;
    return is_used(w) && w->kind->descriptor
               ? w->kind->descriptor(w, slot, fd, err)
               : 0;
}

void wireup_rank_started(struct wireup *w, int slot)
{
    if (is_used(w) && w->kind->rank_started)
        w->kind->rank_started(w, slot);
}

/* ---- The ends of ranks ---- */

/* Appends "rank 3", or "ranks 0, 2 and 5". */
static void put_singletons(const struct wireup *w, struct hb_buf *out,
                           int count)
{
    int n = 0;

    hb_must(hb_buf_printf(out, "rank%s ", count > 1 ? "s" : ""));
    for (int i = 0; i < w->config.job->rank_count; i++) {
        if (!w->slots[i].singleton)
            continue;
        if (n > 0)
            hb_must(hb_buf_puts(out, n == count - 1 ? " and " : ", "));
        hb_must(hb_buf_printf(out, "%d", rank_of(w, i)));
        n++;
    }
}

/* Returns how many ranks are singletons.  Those that failed are none if another
 * rank has connected: MPI finds hvdrun then, and they failed before MPI_Init.
 */
static int count_singletons(struct wireup *w)
{
    int count = 0, connected = 0;

    for (int i = 0; i < w->config.job->rank_count; i++)
        connected |= w->slots[i].connected;
    for (int i = 0; i < w->config.job->rank_count; i++) {
        struct wireup_slot *s = &w->slots[i];

        s->singleton &= !(s->failed && connected);
        count += s->singleton;
    }
    return count;
}

/* Warns of ranks that were to use the wire-up but did not: an MPI that found
 * no launcher runs each of them as a job of one rank, without a word. */
static void warn_of_singletons(struct wireup *w)
{
    struct hb_buf text = HB_BUF_INIT;
    int count = count_singletons(w);

    if (count == 0)
        return;
    put_singletons(w, &text, count);
    hb_must(hb_buf_printf(
        &text,
        " ended without using --wireup %s: %s not call MPI_Init, or the "
        "program's MPI, which must be %s, did not find hvdrun and ran %s "
        "alone; see --wireup in hvdrun(1)",
        w->kind->name, count > 1 ? "they did" : "it did", w->kind->what,
        count > 1 ? "each of them" : "it"));
    hb_log(w->config.log, HB_LOG_WARNING, "%s", hb_buf_data(&text));
    hb_buf_free(&text);
}

/* Returns whether a rank may be waiting for others in MPI. */
static int may_wait(const struct wireup_slot *s)
{
    return s->connected && !s->finished && !s->gone;
}

static int some_may_wait(const struct wireup *w)
{
    for (int i = 0; i < w->config.job->rank_count; i++)
        if (may_wait(&w->slots[i]))
            return 1;
    return 0;
}

/* Ends the ranks that have connected if those of another host never will. */
static void check_lone_host(struct wireup *w)
{
    if (w->lone_host && some_may_wait(w))
        wireup_doom(w, 0, w->lone_host);
}

/* Ends the ranks that have connected if a rank of this host has ended without
 * connecting: MPI_Init waits for all ranks, and this one will never come. */
static void check_absent(struct wireup *w)
{
    int absent = -1;
    char text[96];

    for (int i = 0; i < w->config.job->rank_count; i++)
        if (w->slots[i].singleton && !w->slots[i].failed)
            absent = i;
    if (absent < 0 || !some_may_wait(w))
        return;
    snprintf(text, sizeof(text), "rank %d ended without calling MPI_Init",
             rank_of(w, absent));
    wireup_doom(w, 1 + rank_of(w, absent), text);
}

/* Returns what the rank's end means, once that is known. */
static enum wireup_end conclude(struct wireup *w, int slot,
                                enum wireup_exit status)
{
    struct wireup_slot *s = &w->slots[slot];

    s->singleton = status != WIREUP_KILLED && !s->connected;
    s->failed = status != WIREUP_EXIT_0;
    if (--w->left == 0)
        warn_of_singletons(w);
    check_absent(w);
    return !s->failed && s->connected && !s->finished ? WIREUP_UNFINISHED
                                                      : WIREUP_GOOD;
}

int wireup_rank_ended(struct wireup *w, int slot, enum wireup_exit status,
                      enum wireup_end *how)
{
    int rc = WIREUP_NOW;

    *how = WIREUP_GOOD;
    if (!is_used(w) || w->slots[slot].gone)
        return rc;
    w->slots[slot].gone = 1;
    if (w->phase == WIREUP_OPEN && w->kind->rank_ended)
        rc = w->kind->rank_ended(w, slot);
    if (rc == WIREUP_LATER && status == WIREUP_EXIT_0) {
        w->slots[slot].settling = 1;
        if (w->settling++ == 0)
            uv_timer_start(&w->limit, on_limit, (uint64_t)w->kind->settle_ms,
                           0);
        return WIREUP_LATER;
    }
    *how = conclude(w, slot, status);
    return WIREUP_NOW;
}

void wireup_settled(struct wireup *w, int slot)
{
    struct wireup_slot *s = &w->slots[slot];

    if (!s->settling)
        return;
    s->settling = 0;
    if (--w->settling == 0)
        uv_timer_stop(&w->limit);
    w->config.events->on_settled(w->config.arg, slot,
                                 conclude(w, slot, WIREUP_EXIT_0));
}

/* Takes the ends of ranks as they are known: the kind does not answer. */
static void settle_all(struct wireup *w)
{
    for (int i = 0; i < w->config.job->rank_count; i++)
        wireup_settled(w, i);
}

void wireup_connected(struct wireup *w, int slot)
{
    w->slots[slot].connected = 1;
    w->slots[slot].finished = 0; /* the rank may run several programs */
    check_absent(w);
    check_lone_host(w);
}

void wireup_finished(struct wireup *w, int slot)
{
    w->slots[slot].finished = 1;
}

void wireup_refused_spawn(struct wireup *w, int slot)
{
    if (w->slots[slot].spawned)
        return;
    w->slots[slot].spawned = 1;
    hb_log(w->config.log, HB_LOG_WARNING,
           "rank %d called MPI_Comm_spawn, which needs mpirun (--mpi)",
           rank_of(w, slot));
}

/* ---- Failures ---- */

void wireup_abort(struct wireup *w, const struct wireup_abort *m)
{
    if (w->phase == WIREUP_OPEN && !w->without)
        w->config.events->on_abort(w->config.arg, m);
}

static void on_doom(uv_timer_t *timer)
{
    struct wireup *w = timer->data;

    for (int i = 0; i < w->config.job->rank_count; i++) {
        const struct wireup_slot *s = &w->slots[i];
        struct wireup_abort m = {.slot = i,
                                 .exit_code = 1,
                                 .blames = w->doomed.blames,
                                 .text = w->doomed.text};

        if (!may_wait(s))
            continue;
        wireup_abort(w, &m);
        return;
    }
}

void wireup_doom(struct wireup *w, int blames, const char *text)
{
    if (w->phase != WIREUP_OPEN || w->doomed.text)
        return;
    w->doomed.text = hb_xstrdup(text);
    w->doomed.blames = blames;
    uv_timer_start(&w->doom, on_doom, (uint64_t)w->kind->doom_ms, 0);
}

int wireup_helper_ended(struct wireup *w, pid_t pid, const siginfo_t *info)
{
    if (!w->helper || pid != w->helper)
        return 0;
    w->helper = 0;
    if (w->kind->helper_ended)
        w->kind->helper_ended(w, info);
    return 1;
}

/* ---- Closing ---- */

int wireup_close(struct wireup *w)
{
    stop_watching(w);
    if (w->phase == WIREUP_CLOSED)
        return WIREUP_NOW;
    if (w->phase == WIREUP_CLOSING)
        return WIREUP_LATER;
    uv_timer_stop(&w->limit);
    uv_timer_stop(&w->doom);
    w->phase = WIREUP_CLOSING;
    if (w->kind->close(w) == WIREUP_LATER) {
        uv_timer_start(&w->limit, on_limit, (uint64_t)w->kind->close_ms, 0);
        return WIREUP_LATER;
    }
    w->phase = WIREUP_CLOSED;
    return WIREUP_NOW;
}

void wireup_closed(struct wireup *w)
{
    if (w->phase != WIREUP_CLOSING)
        return;
    uv_timer_stop(&w->limit);
    w->phase = WIREUP_CLOSED;
    w->config.events->on_closed(w->config.arg);
}

/* Kills the helper that does not close; its end completes the closing.  A
 * helper that does not even die of that is left to the agent, as any other
 * descendant.  With no helper there is nothing to wait for. */
static void close_too_late(struct wireup *w)
{
    if (!w->helper || w->killed) {
        wireup_closed(w);
        return;
    }
    w->killed = 1;
    kill(-w->helper, SIGKILL);
    uv_timer_start(&w->limit, on_limit, DEATH_MS, 0);
}

static void on_limit(uv_timer_t *timer)
{
    struct wireup *w = timer->data;

    if (w->phase == WIREUP_OPENING)
        open_too_late(w);
    else if (w->phase == WIREUP_OPEN)
        settle_all(w);
    else if (w->phase == WIREUP_CLOSING)
        close_too_late(w);
}

void wireup_stop(struct wireup *w)
{
    if (!w->timers)
        return;
    (void)wireup_close(w);
    w->phase = WIREUP_CLOSED;
    uv_close((uv_handle_t *)&w->limit, NULL);
    uv_close((uv_handle_t *)&w->doom, NULL);
    w->timers = 0;
}

void wireup_fini(struct wireup *w)
{
    if (w->kind && w->kind->fini)
        w->kind->fini(w);
    hb_free(w->slots);
    hb_free(w->doomed.text);
    hb_free(w->lone_host);
    memset(w, 0, sizeof(*w));
}
