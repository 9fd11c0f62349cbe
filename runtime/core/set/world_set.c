/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the world; see world_set.h.
 *
 * The lock of hvd_init and hvd_shutdown protects `world`, except for what the
 * planes use of it.
 */
#include "runtime/core/set/world_set.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"
#include "runtime/core/set/connect.h"
#include "runtime/core/set/mpi_context.h"
#include "runtime/core/set/provider.h"
#include "runtime/core/set/words.h"
#include "runtime/core/world/agent_call.h"
#include "runtime/core/world/blame.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/segment_map.h"
#include "runtime/plane/shm/shm.h"
#include "runtime/trace/stall.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { START_TIMEOUT_MS = 30000, PAGE_BYTES = 4096 };

/* Tells a set that its members make alone from those that all ranks make. */
static const uint32_t OWN_GROUP = (uint32_t)1 << 31;

static struct {
    uint32_t epoch; /* of the segment in use, or of the last one */
    struct hvd__agent agent;
    struct segment_head *segment;
    uint64_t segment_bytes;
    void *late;                    /* page kept by unmap_segment, or NULL */
    uint64_t arena_bytes;          /* of each local rank */
    uint32_t exchange_bytes;       /* of a block between two local ranks */
    _Atomic uint32_t groups;       /* sets connected so far; tags planes */
    struct worker_welcome welcome; /* without the secret */
} world = {.agent = HVD__AGENT_INIT};

static struct hvd__set *world_set(void)
{
    return &hvd__context.sets[HVD_WORLD];
}

/* ---- What hvdrun says ---------------------------------------------------- */

/* Compares a variable of hvdrun's with its agent: a worker started with half of
 * another job's environment would pose as another rank. */
static int check_variable(const char *name, uint32_t expected,
                          struct hb_error *err)
{
    int64_t v = expected;
    int rc = hb_knob_i64(name, 0, INT32_MAX, &v, err);

    if (rc < 0)
        return rc;
    if (v != expected)
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_%s is %lld and hvdrun says %u: the "
                            "environment is not the one hvdrun made",
                            name, (long long)v, expected);
    return 0;
}

/* Checks what the agent says against the environment; in an elastic job ranks
 * are numbered anew. */
static int check_welcome(const struct worker_welcome *w, struct hb_error *err)
{
    const struct {
        const char *name;
        uint32_t expected;
    } variables[] = {
        {"RANK", w->rank},
        {"SIZE", w->size},
        {"LOCAL_RANK", w->local_rank},
        {"LOCAL_SIZE", w->local_size},
        {"CROSS_RANK", w->cross_rank},
        {"CROSS_SIZE", w->cross_size},
    };

    for (size_t i = 0;
         i < sizeof(variables) / sizeof(variables[0]) && !w->generation; i++) {
        int rc = check_variable(variables[i].name, variables[i].expected, err);
        if (rc < 0)
            return rc;
    }
    if (w->local_size > HVD__SHM_LOCAL_MAX)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "%u ranks on host %s: shared memory serves "
                            "at most %d",
                            w->local_size, w->host, HVD__SHM_LOCAL_MAX);
    return 0;
}

/* Returns whether all hosts of a connected world have as many ranks as this
 * one.  HVD_FORCE_TCP, which makes hosts of ranks, is for one host. */
static int is_homogeneous(const struct worker_welcome *w)
{
    const struct hvd__world_ops *launched = hvd__providers_world();
    const struct hvd__map *map = &world_set()->hosts.map;

    if (w->local_size == w->size)
        return 1;
    for (uint32_t host = 0; host < w->host_count; host++) {
        uint32_t ranks = 0;

        if (!launched)
            ranks = (uint32_t)hvd__map_local_size(map, (int)host);
        for (int r = 0; launched && r < (int)w->size; r++)
            ranks += launched->host(r) == (int)host;
        if (ranks != w->local_size)
            return 0;
    }
    return 1;
}

static void take_topology(const struct worker_welcome *w)
{
    struct hvd__topology *t = &hvd__context.topology;

    t->rank = (int)w->rank;
    t->size = (int)w->size;
    t->local_rank = (int)w->local_rank;
    t->local_size = (int)w->local_size;
    t->cross_rank = (int)w->cross_rank;
    t->cross_size = (int)w->cross_size;
    t->is_homogeneous = is_homogeneous(w);
    t->over_mpi = hvd__mpi_is_open();
    t->mpi_has_threads = t->over_mpi && hvd__mpi_has_threads();
}

/* ---- Odds and ends ------------------------------------------------------- */

/* Gets the limit on waiting for peers: HVD_START_TIMEOUT (hvdrun's
 * --start-timeout), or else Gloo's timeout, which Gloo uses there too. */
int hvd__world_deadline(uint64_t *deadline_ns, struct hb_error *err)
{
    const char *text = hb_knob("START_TIMEOUT");
    int64_t ms = START_TIMEOUT_MS, s = START_TIMEOUT_MS / 1000;

    if (text) {
        if (hb_parse_duration_ms(text, &ms, err) < 0)
            return hb_error_context(err, "HVD_START_TIMEOUT");
    } else {
        if (hb_knob_i64("GLOO_TIMEOUT_SECONDS", 1, INT32_MAX, &s, err) < 0)
            return -HVD_EINVAL;
        ms = s * 1000;
    }
    *deadline_ns = hb_now_ns() + (uint64_t)ms * 1000000;
    return 0;
}

static void say(void *agent, const void *frame, size_t len)
{
    hvd__agent_say(agent, frame, len);
}

static int watch_stalls(const struct worker_welcome *w, struct hb_error *err)
{
    const struct hvd__stall_config config = {
        .head = world.segment,
        .say = say,
        .say_arg = &world.agent,
    };
    int rc = hvd__stall_open(&config, err);

    if (rc == 0)
        atomic_store(
            &hvd__context.status,
            segment_status(world.segment, w->local_size, w->local_rank));
    return rc;
}

/* Returns the array 0 .. n - 1: heap, or NULL with err set. */
static int *all_ranks(int n, struct hb_error *err)
{
    int *ranks = hb_calloc((size_t)n, sizeof(*ranks));

    if (!ranks)
        hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", n);
    for (int i = 0; ranks && i < n; i++)
        ranks[i] = i;
    return ranks;
}

/* ---- The plane ----------------------------------------------------------- */

static struct hvd__host this_host(uint64_t deadline_ns)
{
    return (struct hvd__host){.welcome = &world.welcome,
                              .agent = &world.agent,
                              .segment = world.segment,
                              .arena_bytes = world.arena_bytes,
                              .exchange_bytes = world.exchange_bytes,
                              .group = world.groups,
                              .deadline_ns = deadline_ns};
}

static int make_world_plane(int n, int me, uint64_t deadline_ns,
                            struct hb_error *err)
{
    struct hvd__host host = this_host(deadline_ns);
    const struct hvd__world_ops *launched = hvd__providers_world();
    int *ranks = all_ranks(n, err);
    int rc = ranks ? 0 : err->status;

    /* All ranks or none make a plane. */
    if (launched)
        rc = launched->agree(rc, err);
    if (rc == 0)
        rc = hvd__connect(&host, world_set(), ranks, n, me, err);
    hb_free(ranks);
    return rc;
}

static int connect_world(uint64_t deadline_ns, struct hb_error *err)
{
    const struct worker_welcome *w = &world.welcome;
    struct hvd__set *s = world_set();
    int forced = hvd__hosts_forced(err), rc = 0;

    if (forced >= 0 && hvd__providers_refuse(err) < 0)
        return err->status;
    if (forced < 0)
        return forced;
    if (w->size > 1 && (forced || w->size != w->local_size)) {
        rc = hvd__hosts_join(&s->hosts, &world.agent, w, world.epoch,
                             deadline_ns, err);
        if (rc < 0)
            return rc;
        s->has_hosts = 1;
    }
    return make_world_plane((int)w->size, (int)w->rank, deadline_ns, err);
}

/* Gathers `mine` of all ranks of the world, as hvd__subset asks. */
static int exchange(void *arg, const void *mine, size_t len, void *all,
                    struct hb_error *err)
{
    size_t room = len * (size_t)hvd__context.topology.size;

    (void)arg;
    return hvd__words_allgather(mine, len, all, all ? room : 0, err);
}

/* Connects the members of a set; also called by other ranks if sub->group is
 * not set, with me -1. */
static int connect_subset(struct hvd__set *s, struct hvd__subset *sub, int me,
                          struct hb_error *err)
{
    struct hvd__host host;
    int rc = 0;

    if (world_set()->has_hosts && hvd__subset_hosts(sub) > 1) {
        rc = hvd__hosts_subset(&s->hosts, sub, err);
        s->has_hosts = rc == 0 && me >= 0;
    }
    if (rc < 0 || me < 0)
        return rc;
    host = this_host(sub->deadline_ns);
    rc = hvd__connect(&host, s, sub->ranks, sub->n, me, err);
    return rc < 0 ? rc : hvd__providers_wrap(s, sub->ranks, sub->n, me, err);
}

int hvd__set_connect(struct hvd__set *s, const int *ranks, int n, int me,
                     struct hb_error *err)
{
    struct hvd__subset sub = {.world = &world_set()->hosts,
                              .ranks = ranks,
                              .n = n,
                              .exchange = exchange};
    int rc = hvd__world_deadline(&sub.deadline_ns, err);

    s->id = (int)(s - hvd__context.sets);
    s->slot = s->id;
    s->engine.stall.set = s->id;
    world.groups++; /* on all ranks alike */
    return rc < 0 ? rc : connect_subset(s, &sub, me, err);
}

int hvd__set_connect_members(struct hvd__set *s, const struct hvd__founding *f,
                             struct hb_error *err)
{
    struct hvd__subset sub = {.world = &world_set()->hosts,
                              .ranks = f->ranks,
                              .n = f->n,
                              .deadline_ns = f->deadline_ns,
                              .group = f->founded | OWN_GROUP,
                              .exchange = f->exchange,
                              .arg = f->arg};

    s->id = (int)(s - hvd__context.sets);
    s->slot = f->slot;
    s->founded = f->founded;
    s->engine.stall.set = HVD__STALL_UNWATCHED;
    return connect_subset(s, &sub, f->me, err);
}

/* ---- Parts of the segment ------------------------------------------------ */

int hvd__world_first(const int *ranks, int n)
{
    const struct worker_welcome *w = &world.welcome;

    if (w->local_size == 0) /* a world of one */
        return 0;
    for (int i = 0; i < n; i++)
        for (uint32_t k = 0; k < w->local_size; k++)
            if (w->local_ranks[k] == (uint32_t)ranks[i])
                return i;
    return -1;
}

int hvd__world_is_first(const int *ranks, int n)
{
    int first = hvd__world_first(ranks, n);

    return first >= 0 && ranks[first] == hvd__context.topology.rank;
}

int hvd__set_claim(struct hvd__set *s, int slot, int lowest)
{
    int ranks = (int)world.welcome.local_size;

    s->slot = slot;
    while (world.segment && s->slot >= lowest &&
           !hvd__shm_claim(world.segment, ranks, s->slot))
        s->slot--;
    s->has_claimed = world.segment && s->slot >= lowest;
    return s->slot >= lowest;
}

void hvd__set_unclaim(struct hvd__set *s)
{
    if (s->has_claimed)
        hvd__shm_unclaim(world.segment, (int)world.welcome.local_size, s->slot);
    s->has_claimed = 0;
}

/* ---- Joining ------------------------------------------------------------- */

/* Reads what the user or the machine says about shared memory. */
static int read_sizes(const struct worker_welcome *w, struct hb_error *err)
{
    int rc = hvd__arena_size((int)w->local_size, &world.arena_bytes, err);

    return rc < 0 ? rc : hvd__shm_exchange_size(&world.exchange_bytes, err);
}

/* Connects to the agent.  In an elastic job its answer comes with the next
 * generation; hvdrun limits the wait for all but the first one. */
static int meet_agent(const char *address, uint64_t deadline_ns,
                      struct hb_error *err)
{
    struct worker_welcome *w = &world.welcome;
    int64_t rank = -1;
    int rc = hvd__world_is_elastic(err);

    if (rc > 1 || (rc > 0 && w->generation > 0))
        deadline_ns = UINT64_MAX;
    if (rc >= 0)
        rc = hb_knob_i64("RANK", 0, INT32_MAX, &rank, err);
    if (rc == 0 && rank < 0)
        rc = hb_error_set(err, HVD_EINVAL,
                          "HVD_RENDEZVOUS is set and HVD_RANK is not: the "
                          "environment is not the one hvdrun made");
    if (rc == 0)
        rc = hvd__agent_open(&world.agent, address, (uint32_t)rank, deadline_ns,
                             w, err);
    return rc < 0 ? rc : check_welcome(w, err);
}

static int join_agent(const char *address, struct hb_error *err)
{
    struct worker_welcome *w = &world.welcome;
    uint64_t deadline_ns = 0, bytes;
    uint32_t epoch;
    int fd = -1;
    int rc = hvd__world_deadline(&deadline_ns, err);

    if (rc == 0)
        rc = meet_agent(address, deadline_ns, err);
    if (rc == 0)
        atomic_store(&hvd__context.generation, w->generation);
    /* What follows waits for ranks that are all there. */
    if (rc == 0 && w->generation)
        rc = hvd__world_deadline(&deadline_ns, err);
    if (rc < 0)
        return rc;
    epoch = w->generation ? w->generation : world.epoch + 1;
    hvd__blame_open(&world.agent);
    rc = read_sizes(w, err);
    if (rc < 0)
        return rc;
    bytes = hvd__shm_segment_bytes((int)w->local_size) +
            w->local_size * world.arena_bytes;
    rc = hvd__agent_join(&world.agent, epoch, bytes, deadline_ns, &fd, err);
    if (rc == 0) {
        world.epoch = epoch;
        rc = hvd__segment_map(fd, world.epoch, w->local_size, bytes,
                              &world.segment, err);
        world.segment_bytes = bytes;
    }
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        rc = connect_world(deadline_ns, err);
    if (rc == 0 && w->size > 1)
        rc = watch_stalls(w, err);
    if (rc == 0)
        take_topology(w);
    /* All hosts are connected. */
    explicit_bzero(w->secret, sizeof(w->secret));
    return rc;
}

/* Checks what needs no other rank. */
static int check_alone(const struct worker_welcome *w, struct hb_error *err)
{
    int forced = hvd__hosts_forced(err);

    if (forced > 0)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "HVD_FORCE_TCP needs hvdrun's agents; under MPI "
                            "set HVD_CPU_PLANE=mpi");
    return forced < 0 ? forced : read_sizes(w, err);
}

/* Joins a world that another launcher than hvdrun has started, without an
 * agent. */
static int join_launched(const struct hvd__world_ops *launched,
                         void (*leave)(void), struct hb_error *err)
{
    struct worker_welcome *w = &world.welcome;
    struct hvd__world_memory memory;
    uint64_t deadline_ns = 0;
    int rc = hvd__world_deadline(&deadline_ns, err);

    if (rc == 0)
        rc = launched->open(w, deadline_ns, leave, err);
    if (rc == 0)
        rc = launched->agree(check_alone(w, err), err);
    if (rc < 0)
        return rc;
    memory = (struct hvd__world_memory){
        .epoch = ++world.epoch,
        .arena_bytes = world.arena_bytes,
        .bytes = hvd__shm_segment_bytes((int)w->local_size) +
                 w->local_size * world.arena_bytes};
    rc = launched->segment(&memory, &world.segment, err);
    world.segment_bytes = memory.bytes;
    if (!world.segment)
        world.arena_bytes = 0;
    if (rc == 0)
        rc = make_world_plane((int)w->size, (int)w->rank, deadline_ns, err);
    if (rc == 0)
        take_topology(w);
    return launched->agree(rc, err);
}

static int world_of_one(struct hb_error *err)
{
    static const struct hvd__topology one = {0, 1, 0, 1, 0, 1, 1, 0, 0};
    int64_t size = 1;
    int rc = hb_knob_i64("SIZE", 1, INT32_MAX, &size, err);

    if (rc < 0)
        return rc;
    if (size != 1)
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_SIZE is %lld and HVD_RENDEZVOUS is not "
                            "set: start the program with hvdrun, or unset "
                            "both for a world of one",
                            (long long)size);
    world_set()->plane = hvd__self_plane();
    hvd__context.topology = one;
    return 0;
}

int hvd__world_join(void (*leave)(void), struct hb_error *err)
{
    const char *address = hb_knob("RENDEZVOUS");
    uint64_t begun_ns = hb_now_ns();
    const struct hvd__world_ops *launched = NULL;
    int rc = hvd__providers_started(address != NULL, &launched, err);

    if (rc == 0)
        rc = launched  ? join_launched(launched, leave, err)
             : address ? join_agent(address, err)
                       : world_of_one(err);
    return rc == -HVD_ETIMEOUT ? hvd__agent_late(&world.agent, begun_ns, err)
                               : rc;
}

int hvd__world_has_peers(void)
{
    return world.segment || hvd__providers_world();
}

int hvd__world_is_launched(void)
{
    return hvd__providers_world() != NULL;
}

uint32_t hvd__world_epoch(void)
{
    return world.epoch;
}

void hvd__world_interrupt(void)
{
    hvd__agent_interrupt(&world.agent);
}

struct hvd__agent *hvd__world_agent(void)
{
    return &world.agent;
}

int hvd__world_is_elastic(struct hb_error *err)
{
    int64_t elastic = 0;
    int rc = hb_knob_i64("ELASTIC", 0, 2, &elastic, err);

    return rc < 0 ? rc : (int)elastic;
}

const struct worker_welcome *hvd__world_welcome(void)
{
    return &world.welcome;
}

struct segment_head *hvd__world_head(void)
{
    return world.welcome.generation ? world.segment : NULL;
}

const char *hvd__world_host(void)
{
    return world.welcome.host;
}

/* ---- Opening the set ----------------------------------------------------- */

/* Opens hvd_alloc's arena in this rank's part of the segment, if any. */
static void open_memory(void)
{
    const struct worker_welcome *w = &world.welcome;
    unsigned char *at = (unsigned char *)world.segment;

    if (at && world.arena_bytes)
        at += hvd__shm_arena_at((int)w->local_size, (int)w->local_rank,
                                world.arena_bytes);
    hvd__arena_init(&hvd__context.memory, world.arena_bytes ? at : NULL,
                    world.arena_bytes);
}

int hvd__world_open(struct hvd__tuner *tuner, struct hb_error *err)
{
    int n = hvd__context.topology.size;
    int *ranks = all_ranks(n, err);
    int rc;

    if (!ranks)
        return err->status;
    open_memory();
    rc = hvd__providers_wrap(world_set(), ranks, n, hvd__context.topology.rank,
                             err);
    if (rc < 0) {
        hb_free(ranks);
        return rc;
    }
    rc = hvd__set_open(world_set(), ranks, n, hvd__context.topology.rank);
    hb_free(ranks);
    if (rc < 0)
        return hb_error_set(err, HVD_ENOMEM, "no memory for a world");
    if (n > 1 && tuner->all)
        world_set()->engine.controller.tuner = tuner;
    hvd__set_publish(world_set());
    return 0;
}

/* ---- Leaving ------------------------------------------------------------- */

/* Unmaps from begin to end, except for detached blocks of hvd_alloc. */
static void unmap_around_blocks(char *begin, char *end)
{
    const struct hvd__arena_list *kept = &hvd__context.memory.apart;

    while (begin < end) {
        char *stop = end, *next = end;

        for (size_t i = 0; i < kept->count; i++) {
            char *at = (char *)kept->blocks[i].at;

            if (at >= begin && at < stop) {
                stop = at;
                next = at + kept->blocks[i].bytes;
            }
        }
        if (stop > begin)
            munmap(begin, (size_t)(stop - begin));
        begin = next;
    }
}

/* Unmaps the segment but replaces the page of this rank's status by an empty
 * one until the next time: a thread whose operation hvd_shutdown has ended may
 * still note there that it returns (trace/stall.h). */
static void unmap_segment(void)
{
    const struct worker_welcome *w = &world.welcome;
    char *begin = (char *)world.segment, *end = begin + world.segment_bytes;
    uintptr_t status =
        (uintptr_t)segment_status(world.segment, w->local_size, w->local_rank);
    char *page = (char *)(status & ~(uintptr_t)(PAGE_BYTES - 1));

    if (world.late)
        munmap(world.late, PAGE_BYTES);
    world.late = mmap(page, PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (world.late == MAP_FAILED) {
        world.late = NULL;
        unmap_around_blocks(begin, end);
        return;
    }
    unmap_around_blocks(begin, page);
    unmap_around_blocks(page + PAGE_BYTES, end);
}

void hvd__world_leave(void)
{
    hvd__agent_leave(&world.agent, world.epoch);
}

void hvd__world_close(void)
{
    world.arena_bytes = 0;
    if (world.segment)
        unmap_segment();
    hvd__blame_close();
    hvd__agent_close(&world.agent);
    world.segment = NULL;
}
