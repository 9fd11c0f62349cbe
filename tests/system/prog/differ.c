/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of bursts of operations in which one rank does not do what the others
 * do: `differ SEED SEEDS BURSTS`.  The odd rank gives another count, dtype, op,
 * root, scale, shape or kind, another order, or one operation less or more.
 * Operations have names or none, are in groups or not, in the world or in
 * process sets, and are waited for or not.
 *
 * Every rank must get either the right values, or an error whose text holds
 * both ranks and both values.  An operation that failed, or one beside it, has
 * written nothing that it should not, and the next burst goes on.
 *
 * Exits 0 when all was right; else 1 after a line with the seed and the burst,
 * which suffice to repeat the failure.  A burst that hangs ends the process in
 * the same way after HVD_DIFFER_TIMEOUT seconds (300).
 */
#include "tests/system/prog/differ.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GUARD_BYTES = 32, GUARD = 0xa5 };

/* An operation that this rank has issued, with its buffers. */
struct job {
    const struct entry *e;
    const struct entry *all[RANKS_MAX]; /* every member's, by place */
    const struct team *team;
    int place;
    unsigned char *send[GROUP_MAX], *recv[GROUP_MAX];
    size_t sent[GROUP_MAX], room[GROUP_MAX]; /* elements */
    size_t counts[GROUP_MAX * RANKS_MAX], splits[RANKS_MAX];
    char name[NAME_BYTES];
    hvd_request *req;
    int rc;
    char text[512];
};

static struct burst burst;
static int me;
static long disputes, results;

static _Noreturn void wrong(const struct job *j, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static _Noreturn void wrong(const struct job *j, const char *format, ...)
{
    char what[600];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    fprintf(stderr,
            "differ: seed %llu, burst %llu, rank %d (rank %d is odd: %d), "
            "operation %d \"%s\" kind %d: %s: %s\n",
            (unsigned long long)burst.seed, (unsigned long long)burst.number,
            me, burst.odd_rank, (int)burst.oddity,
            j ? (int)(j->e - burst.list[me].entry) : -1, j ? j->name : "",
            j ? (int)j->e->kind : -1, what, hvd_error_message());
    _exit(1);
}

/* What the process prints if the burst hangs. */
static char last_words[160];

static void on_alarm(int signo)
{
    (void)signo;
    if (write(STDERR_FILENO, last_words, strlen(last_words)) < 0)
        _exit(2);
    _exit(1);
}

static void set_alarm(void)
{
    const char *text = getenv("HVD_DIFFER_TIMEOUT");

    snprintf(last_words, sizeof(last_words),
             "differ: seed %llu, burst %llu, rank %d (rank %d is odd: %d): "
             "it does not end\n",
             (unsigned long long)burst.seed, (unsigned long long)burst.number,
             me, burst.odd_rank, (int)burst.oddity);
    alarm(text ? (unsigned)atoi(text) : 300);
}

/* ---- Elements -------------------------------------------------------------
 */

static void put(void *buf, enum hvd_dtype t, size_t i, double v)
{
    switch (t) {
    case HVD_INT32:
        ((int32_t *)buf)[i] = (int32_t)v;
        break;
    case HVD_FLOAT32:
        ((float *)buf)[i] = (float)v;
        break;
    case HVD_FLOAT64:
        ((double *)buf)[i] = v;
        break;
    default:
        ((uint8_t *)buf)[i] = (uint8_t)v;
        break;
    }
}

/* Returns whether element i of buf is v, a value that every dtype has
 * exactly. */
static int is(const void *buf, enum hvd_dtype t, size_t i, double v)
{
    unsigned char want[8] = {0};

    put(want, t, 0, v);
    return memcmp((const unsigned char *)buf + i * hvd_dtype_size(t), want,
                  hvd_dtype_size(t)) == 0;
}

/* ---- Preparing ------------------------------------------------------------
 */

static int members_of(const struct entry *e)
{
    return e->members ? e->members : 1;
}

static size_t share(size_t rows, int n, int place)
{
    return rows / (size_t)n + ((size_t)place < rows % (size_t)n);
}

/* Returns the elements that arrive in member m if the ranks agree; if they do
 * not, any room will do. */
static size_t room_for(const struct job *j, int m)
{
    const struct entry *e = j->e;
    size_t room = 0;

    if (e->kind == REDUCESCATTER)
        return share(e->count, j->team->n, j->place);
    if (e->kind != ALLGATHER && e->kind != ALLTOALL)
        return j->sent[m];
    for (int i = 0; i < j->team->n; i++)
        room += e->kind == ALLGATHER
                    ? differ_count(j->all[i], m, j->team->rank[i])
                    : differ_split(j->all[i], j->team->rank[i], j->place);
    return room;
}

static unsigned char *guarded(size_t elems, enum hvd_dtype t)
{
    size_t bytes = elems * hvd_dtype_size(t) + GUARD_BYTES;
    unsigned char *p = malloc(bytes);

    if (!p)
        wrong(NULL, "no memory");
    memset(p, GUARD, bytes);
    return p;
}

static void prepare_member(struct job *j, int m)
{
    const struct entry *e = j->e;

    j->sent[m] = differ_count(e, m, me);
    if (e->kind == ALLTOALL) {
        j->sent[m] = 0;
        for (int i = 0; i < j->team->n; i++) {
            j->splits[i] = differ_split(e, me, i);
            j->sent[m] += j->splits[i];
        }
    }
    j->room[m] = room_for(j, m);
    j->send[m] = guarded(j->sent[m], e->dtype);
    j->recv[m] = guarded(j->room[m], e->dtype);
    for (size_t i = 0; i < j->sent[m]; i++)
        put(j->send[m], e->dtype, i, differ_value(e, m, me, i));
}

static void prepare(struct job *j, int at)
{
    memset(j, 0, sizeof(*j));
    j->e = &burst.list[me].entry[at];
    j->team = &burst.team[j->e->team];
    j->place = place_in(j->team, me);
    differ_match(&burst, me, at, j->all);
    if (j->e->name >= 0)
        snprintf(j->name, sizeof(j->name), "w%d", j->e->name);
    for (int m = 0; m < members_of(j->e); m++)
        prepare_member(j, m);
}

/* ---- Issuing --------------------------------------------------------------
 */

static int issue_group(struct job *j, const struct hvd_options *o)
{
    const struct entry *e = j->e;
    size_t n = (size_t)e->members;
    const void *send[GROUP_MAX];
    void *recv[GROUP_MAX];

    for (size_t m = 0; m < n; m++) {
        send[m] = j->send[m];
        recv[m] = j->recv[m];
    }
    if (e->kind == ALLREDUCE)
        return hvd_grouped_allreduce_async(j->name, n, send, recv, j->sent,
                                           e->dtype, e->op, o, &j->req);
    return hvd_grouped_allgather_async(j->name, n, send, j->sent, recv, j->room,
                                       j->counts, e->dtype, o, &j->req);
}

static int issue_later(struct job *j, const struct hvd_options *o)
{
    const struct entry *e = j->e;
    void *send = j->send[0], *recv = j->recv[0];
    size_t sent = j->sent[0], room = j->room[0];

    switch (e->kind) {
    case ALLREDUCE:
        return hvd_allreduce_async(j->name, send, recv, sent, e->dtype, e->op,
                                   o, &j->req);
    case BROADCAST:
        return hvd_broadcast_async(j->name, send, recv, sent, e->dtype,
                                   j->team->rank[e->root], o, &j->req);
    case ALLGATHER:
        return hvd_allgather_async(j->name, send, sent, recv, room, j->counts,
                                   e->dtype, o, &j->req);
    case ALLTOALL:
        return hvd_alltoall_async(j->name, send, j->splits, sent, recv, room,
                                  j->counts, e->dtype, o, &j->req);
    case REDUCESCATTER:
        return hvd_reducescatter_async(j->name, send, recv, sent, 1, e->dtype,
                                       e->op, o, &j->req);
    default:
        return hvd_barrier_async(j->name, o, &j->req);
    }
}

static int do_now(struct job *j, const struct hvd_options *o)
{
    const struct entry *e = j->e;
    void *send = j->send[0], *recv = j->recv[0];
    size_t sent = j->sent[0], room = j->room[0];

    switch (e->kind) {
    case ALLREDUCE:
        return hvd_allreduce(send, recv, sent, e->dtype, e->op, o);
    case BROADCAST:
        return hvd_broadcast(send, recv, sent, e->dtype, j->team->rank[e->root],
                             o);
    case ALLGATHER:
        return hvd_allgather(send, sent, recv, room, j->counts, e->dtype, o);
    case ALLTOALL:
        return hvd_alltoall(send, j->splits, sent, recv, room, j->counts,
                            e->dtype, o);
    case REDUCESCATTER:
        return hvd_reducescatter(send, recv, sent, 1, e->dtype, e->op, o);
    default:
        return hvd_barrier(o);
    }
}

static void note(struct job *j, int rc)
{
    j->rc = rc;
    snprintf(j->text, sizeof(j->text), "%s", rc < 0 ? hvd_error_message() : "");
}

static void issue(struct job *j, int blocks)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    struct hvd_shape shapes[GROUP_MAX];
    int64_t dims[GROUP_MAX][2];
    int rc;

    for (int m = 0; m < members_of(j->e); m++) {
        dims[m][0] = (int64_t)j->sent[m];
        dims[m][1] = 1;
        shapes[m] = (struct hvd_shape){j->e->shape == COLUMN ? 2 : 1, dims[m]};
    }
    o.shapes = j->e->shape ? shapes : NULL;
    o.process_set = j->team->id;
    o.postscale = j->e->postscale;
    if (blocks && !j->e->members) {
        note(j, do_now(j, &o));
        return;
    }
    rc = j->e->members ? issue_group(j, &o) : issue_later(j, &o);
    if (rc < 0)
        wrong(j, "it is not taken (%d)", rc);
}

static void await(struct job *j, uint64_t salt)
{
    int done;

    if (!j->req)
        return;
    if (salt % 5 == 0 && hvd_test(j->req, &done) < 0)
        wrong(j, "hvd_test");
    note(j, hvd_wait(j->req));
    j->req = NULL;
}

/* ---- Checking -------------------------------------------------------------
 */

static double reduced(const struct job *j, int m, size_t i)
{
    double all = 0;

    for (int k = 0; k < j->team->n; k++) {
        double v = differ_value(j->all[k], m, j->team->rank[k], i);

        if (k == 0)
            all = v;
        else if (j->e->op == HVD_SUM)
            all += v;
        else if (j->e->op == HVD_MIN ? v < all : v > all)
            all = v;
    }
    return all * j->e->postscale;
}

static void check_reduced(const struct job *j, int m)
{
    size_t first = 0, rows = j->e->count, n = (size_t)j->team->n;

    if (j->e->kind == REDUCESCATTER)
        for (int k = 0; k < j->place; k++)
            first += share(rows, (int)n, k);
    for (size_t i = 0; i < j->room[m]; i++)
        if (!is(j->recv[m], j->e->dtype, i, reduced(j, m, first + i)))
            wrong(j, "element %zu of member %d", i, m);
}

/* Checks that member m holds what each rank sent to this one, in rank order. */
static void check_gathered(const struct job *j, int m)
{
    const struct entry *e = j->e;
    size_t at = 0;

    for (int k = 0; k < j->team->n; k++) {
        int rank = j->team->rank[k];
        size_t first = 0, count = differ_count(j->all[k], m, rank);

        if (e->kind == ALLTOALL) {
            count = differ_split(j->all[k], rank, j->place);
            for (int i = 0; i < j->place; i++)
                first += differ_split(j->all[k], rank, i);
        }
        if (j->counts[m * j->team->n + k] != count)
            wrong(j, "count of place %d of member %d", k, m);
        for (size_t i = 0; i < count; i++, at++)
            if (!is(j->recv[m], e->dtype, at,
                    differ_value(j->all[k], m, rank, first + i)))
                wrong(j, "element %zu of place %d of member %d", i, k, m);
    }
}

static void check_broadcast(const struct job *j)
{
    int root = j->e->root;

    for (size_t i = 0; i < j->room[0]; i++)
        if (!is(j->recv[0], j->e->dtype, i,
                differ_value(j->all[root], 0, j->team->rank[root], i)))
            wrong(j, "element %zu of the root's", i);
}

static void check_values(const struct job *j)
{
    if (j->rc < 0)
        wrong(j, "status %d instead of 0: %s", j->rc, j->text);
    results++;
    for (int m = 0; m < members_of(j->e); m++)
        if (j->e->kind == BROADCAST)
            check_broadcast(j);
        else if (j->e->kind == ALLGATHER || j->e->kind == ALLTOALL)
            check_gathered(j, m);
        else if (j->e->kind != BARRIER)
            check_reduced(j, m);
}

static void check_text(const struct job *j, const struct dispute *d)
{
    const char *at = j->text;

    for (int i = 0; i < 2; i++) {
        char who[24];

        snprintf(who, sizeof(who), "rank %d ", j->team->rank[d->place[i]]);
        at = strstr(at, who);
        if (!at || !strstr(at, d->says[i]))
            wrong(j, "\"%s\" does not say that %s%s", j->text, who, d->says[i]);
        at += strlen(who);
    }
    if (j->name[0] && !strstr(j->text, j->name))
        wrong(j, "\"%s\" does not name it", j->text);
}

static void check_dispute(const struct job *j, const struct dispute *d)
{
    if (j->rc != -HVD_EMISMATCH)
        wrong(j, "status %d instead of a mismatch: %s", j->rc, j->text);
    disputes++;
    check_text(j, d);
    for (int m = 0; m < members_of(j->e); m++)
        for (size_t i = 0; i < j->room[m] * hvd_dtype_size(j->e->dtype); i++)
            if (j->recv[m][i] != GUARD)
                wrong(j, "it failed, and byte %zu was written", i);
}

static void check(const struct job *j)
{
    struct dispute d;

    if (differ_dispute(j->team, j->all, &d))
        check_dispute(j, &d);
    else
        check_values(j);
    for (int m = 0; m < members_of(j->e); m++)
        for (int i = 0; i < GUARD_BYTES; i++)
            if (j->recv[m][j->room[m] * hvd_dtype_size(j->e->dtype) +
                           (size_t)i] != GUARD)
                wrong(j, "written beside the buffer");
}

/* ---- Running --------------------------------------------------------------
 */

static uint64_t own_dice(int salt)
{
    return mix(burst.seed ^ burst.number << 16, (uint64_t)me + 7,
               (uint64_t)salt);
}

/* Issues the jobs whose `late` is as given, and waits for them in some
 * order. */
static void run_part(struct job *jobs, int late)
{
    int n = burst.list[me].n;
    int blocks = burst.can_block && own_dice(0) % 3 == 0;
    int step = 1 + (int)(own_dice(1) % 5), first = (int)(own_dice(2) % 16);

    for (int k = 0; k < n; k++)
        if (jobs[k].e->late == late)
            issue(&jobs[k], blocks);
    for (int i = 0; i < n; i++) {
        struct job *j = &jobs[(first + i * step) % n];

        if (j->e->late == late)
            await(j, own_dice(i + 3));
    }
    for (int k = 0; k < n; k++) /* those that the steps left out */
        if (jobs[k].e->late == late)
            await(&jobs[k], 1);
}

/* Checks that all teams still work. */
static void afterwards(void)
{
    for (int t = 0; t < TEAMS; t++) {
        struct hvd_options o = HVD_OPTIONS_INIT;
        const struct team *team = &burst.team[t];
        int32_t x = me + 1, sum = 0;

        if (place_in(team, me) < 0)
            continue;
        for (int i = 0; i < team->n; i++)
            sum += team->rank[i] + 1;
        o.process_set = team->id;
        if (hvd_allreduce(&x, &x, 1, HVD_INT32, HVD_SUM, &o) < 0 || x != sum)
            wrong(NULL, "afterwards, team %d has %d", t, x);
    }
}

static void run_burst(uint64_t seed, uint64_t number, const struct team *team)
{
    static struct job jobs[ENTRIES_MAX];
    int n;

    differ_script(&burst, seed, number, team);
    set_alarm();
    n = burst.list[me].n;
    for (int k = 0; k < n; k++)
        prepare(&jobs[k], k);
    run_part(jobs, 0);
    run_part(jobs, 1);
    for (int k = 0; k < n; k++) {
        check(&jobs[k]);
        for (int m = 0; m < members_of(jobs[k].e); m++) {
            free(jobs[k].send[m]);
            free(jobs[k].recv[m]);
        }
    }
    if (number % 3 == 0)
        afterwards();
}

/* Makes the world and random teams.  Teams of the same ranks share a process
 * set. */
static void make_teams(uint64_t seed, struct team *team)
{
    for (int t = 0; t < TEAMS; t++) {
        int twin = 0;

        script_team(seed, t, hvd_size(), &team[t]);
        while (twin < t && (team[twin].n != team[t].n ||
                            memcmp(team[twin].rank, team[t].rank,
                                   (size_t)team[t].n * sizeof(int)) != 0))
            twin++;
        team[t].id = team[twin].id;
        if (t && twin == t &&
            hvd_process_set_add(team[t].rank, (size_t)team[t].n, &team[t].id) <
                0)
            wrong(NULL, "hvd_process_set_add");
    }
}

static void run_seed(uint64_t seed, uint64_t bursts)
{
    struct team team[TEAMS];

    if (hvd_init() < 0)
        wrong(NULL, "hvd_init");
    me = hvd_rank();
    make_teams(seed, team);
    for (uint64_t i = 0; i < bursts; i++)
        run_burst(seed, i, team);
    if (hvd_shutdown() < 0)
        wrong(NULL, "hvd_shutdown");
}

int main(int argc, char **argv)
{
    uint64_t seed, seeds, bursts;

    if (argc != 4) {
        fprintf(stderr, "usage: differ SEED SEEDS BURSTS\n");
        return 99;
    }
    seed = strtoull(argv[1], NULL, 10);
    seeds = strtoull(argv[2], NULL, 10);
    bursts = strtoull(argv[3], NULL, 10);
    signal(SIGALRM, on_alarm);
    for (uint64_t i = 0; i < seeds; i++)
        run_seed(seed + i, bursts);
    if (me == 0)
        printf("%ld results, %ld mismatches\n", results, disputes);
    return 0;
}
