/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd_init, hvd_shutdown and the topology.
 *
 * `life` orders init, shutdown and the exit destructor; everything in
 * `world` belongs to it, except what the plane was given to use.
 */
#include "runtime/core/context.h"

#include "lib/base/clock.h"
#include "lib/base/env.h"
#include "runtime/core/agent_client.h"
#include "runtime/core/hosts.h"
#include "runtime/core/message.h"
#include "runtime/plane/hier.h"
#include "runtime/plane/shm.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { START_TIMEOUT_MS = 30000, PAGE_BYTES = 4096 };

struct hvd__context hvd__context = {.engine = HVD__ENGINE_INIT};

struct world {
    int up;         /* hvd_init succeeded, hvd_shutdown did not follow */
    pid_t pid;      /* the process that called hvd_init */
    uint32_t epoch; /* of the segment in use, or of the last one */
    struct hvd__agent agent;
    struct segment_head *segment;
    uint64_t segment_bytes;
    struct hvd__hosts hosts; /* of a world on several */
    struct hvd__plane *plane;
};

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static struct world world = {.agent = HVD__AGENT_INIT};

/* ---- What hvdrun says ---------------------------------------------- */

/* A variable of hvdrun's must not contradict its agent: a worker that was
 * started with half of another job's environment would be somebody else. */
static int check_variable(const char *name, uint32_t told, struct hb_error *err)
{
    int64_t v = told;
    int rc = hb_knob_i64(name, 0, INT32_MAX, &v, err);

    if (rc < 0)
        return rc;
    if (v != told)
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_%s is %lld and hvdrun says %u: the "
                            "environment is not the one hvdrun made",
                            name, (long long)v, told);
    return 0;
}

static int check_welcome(const struct worker_welcome *w, struct hb_error *err)
{
    const struct {
        const char *name;
        uint32_t told;
    } variables[] = {
        {"RANK", w->rank},
        {"SIZE", w->size},
        {"LOCAL_RANK", w->local_rank},
        {"LOCAL_SIZE", w->local_size},
        {"CROSS_RANK", w->cross_rank},
        {"CROSS_SIZE", w->cross_size},
    };

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        int rc = check_variable(variables[i].name, variables[i].told, err);
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

static void take_topology(const struct worker_welcome *w)
{
    struct hvd__topology *t = &hvd__context.topology;

    t->rank = (int)w->rank;
    t->size = (int)w->size;
    t->local_rank = (int)w->local_rank;
    t->local_size = (int)w->local_size;
    t->cross_rank = (int)w->cross_rank;
    t->cross_size = (int)w->cross_size;
}

/* ---- The segment --------------------------------------------------- */

static int map_segment(int fd, const struct worker_welcome *w, uint64_t bytes,
                       struct hb_error *err)
{
    struct stat st;
    void *p;

    if (fstat(fd, &st) < 0)
        return hb_error_sys(err, errno, "look at the shared segment");
    if ((uint64_t)st.st_size < bytes)
        return hb_error_set(err, HVD_EPROTO,
                            "agent: the segment has %lld bytes, not %llu",
                            (long long)st.st_size, (unsigned long long)bytes);
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return hb_error_sys(err, errno, "map %llu bytes of shared memory",
                            (unsigned long long)bytes);
    world.segment = p;
    world.segment_bytes = bytes;
    /* A forked child must not find it. */
    madvise(p, bytes, MADV_DONTFORK);
    if (segment_head_check(p, world.epoch, w->local_size, bytes) < 0)
        return hb_error_set(err, HVD_EPROTO,
                            "agent: the segment's head is not ours");
    return 0;
}

/* ---- The plane ------------------------------------------------------ */

static int agent_lost(void *arg, struct hb_error *err)
{
    return hvd__agent_check(arg, err);
}

static struct hvd__plane *make_shm(const struct worker_welcome *w, int alone)
{
    struct hvd__shm_config config = {
        .head = world.segment,
        .local_rank = (int)w->local_rank,
        .local_size = (int)w->local_size,
        .world_ranks = w->local_ranks,
        .host = w->host,
        .cpus = (int)w->cpus,
        .agent_lost = alone ? agent_lost : hvd__hosts_lost,
        .agent_arg = alone ? (void *)&world.agent : (void *)&world.hosts,
        .host_of = alone ? NULL : hvd__hosts_name,
    };

    return hvd__shm_new(&config);
}

static struct hvd__plane *make_hier(const struct worker_welcome *w)
{
    struct hvd__hier_config config = {
        .map = &world.hosts.map,
        .rank = w->rank,
        .shm = make_shm(w, 0),
        .tcp = world.hosts.tcp,
        .head = world.segment,
    };
    struct hvd__plane *plane = config.shm ? hvd__hier_new(&config) : NULL;

    if (plane)
        return plane;
    if (config.shm)
        config.shm->ops->free(config.shm);
    hvd__tcp_free(config.tcp);
    return NULL;
}

static int make_plane(const struct worker_welcome *w, uint64_t deadline_ns,
                      struct hb_error *err)
{
    if (w->size == 1) {
        world.plane = hvd__self_plane();
    } else if (w->size == w->local_size) {
        world.plane = make_shm(w, 1);
    } else {
        int rc = hvd__hosts_join(&world.hosts, &world.agent, w, world.epoch,
                                 deadline_ns, err);

        if (rc < 0)
            return rc;
        world.plane = make_hier(w);
    }
    if (!world.plane)
        return hb_error_set(err, HVD_ENOMEM, "no memory for a plane");
    return 0;
}

/* ---- Up and down --------------------------------------------------- */

static int deadline(uint64_t *deadline_ns, struct hb_error *err)
{
    const char *text = hb_knob("START_TIMEOUT");
    int64_t ms = START_TIMEOUT_MS;

    if (text && hb_parse_duration_ms(text, &ms, err) < 0)
        return hb_error_context(err, "HVD_START_TIMEOUT");
    *deadline_ns = hb_now_ns() + (uint64_t)ms * 1000000;
    return 0;
}

static int join_world(const char *address, struct hb_error *err)
{
    static struct worker_welcome w; /* large; `life` protects it */
    uint64_t deadline_ns = 0, bytes;
    int64_t rank = -1;
    int fd = -1;
    int rc = deadline(&deadline_ns, err);

    if (rc == 0)
        rc = hb_knob_i64("RANK", 0, INT32_MAX, &rank, err);
    if (rc == 0 && rank < 0)
        rc = hb_error_set(err, HVD_EINVAL,
                          "HVD_RENDEZVOUS is set and HVD_RANK is not: the "
                          "environment is not the one hvdrun made");
    if (rc == 0)
        rc = hvd__agent_open(&world.agent, address, (uint32_t)rank, deadline_ns,
                             &w, err);
    if (rc == 0)
        rc = check_welcome(&w, err);
    if (rc < 0)
        return rc;
    bytes = hvd__shm_segment_bytes((int)w.local_size);
    rc = hvd__agent_join(&world.agent, world.epoch + 1, bytes, deadline_ns, &fd,
                         err);
    if (rc == 0) {
        world.epoch++;
        rc = map_segment(fd, &w, bytes, err);
    }
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        rc = make_plane(&w, deadline_ns, err);
    if (rc == 0)
        take_topology(&w);
    /* The connections between hosts are made. */
    explicit_bzero(w.secret, sizeof(w.secret));
    return rc;
}

static int world_of_one(struct hb_error *err)
{
    static const struct hvd__topology one = {0, 1, 0, 1, 0, 1};
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
    world.plane = hvd__self_plane();
    hvd__context.topology = one;
    return 0;
}

/* Made once and kept. */
static int make_page(struct hb_error *err)
{
    void *page;

    if (hvd__context.page)
        return 0;
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return hb_error_sys(err, errno, "map a page");
    /* Where the kernel cannot, a forked child is not told so politely. */
    madvise(page, PAGE_BYTES, MADV_WIPEONFORK);
    atomic_store(&hvd__context.page, (struct hvd__page *)page);
    return 0;
}

static void take_down(void)
{
    if (world.plane)
        world.plane->ops->free(world.plane);
    if (world.segment)
        munmap(world.segment, world.segment_bytes);
    hvd__hosts_fini(&world.hosts);
    hvd__agent_close(&world.agent);
    world.plane = NULL;
    world.segment = NULL;
    world.up = 0;
    atomic_store(&hvd__context.up, 0);
}

static void say_goodbye(void)
{
    world.plane->ops->leave(world.plane);
    hvd__agent_leave(&world.agent, world.epoch);
}

static int bring_up(struct hb_error *err)
{
    const char *address = hb_knob("RENDEZVOUS");
    int rc = make_page(err);

    if (rc == 0)
        rc = address ? join_world(address, err) : world_of_one(err);
    if (rc < 0) {
        take_down();
        return hb_error_context(err, "hvd_init");
    }
    world.pid = getpid();
    world.up = 1;
    hvd__engine_open(&hvd__context.engine, world.plane);
    atomic_store(&hvd__context.page->here, 1);
    atomic_store(&hvd__context.up, 1);
    /* Release: pairs with hvd__alive. */
    atomic_store_explicit(&hvd__context.page->alive, 1, memory_order_release);
    return 0;
}

int hvd_init(void)
{
    struct hb_error err = HB_ERROR_INIT;

    if (hvd__forked())
        return hvd__fail(HVD_EUNSUPPORTED,
                         "hvd_init: this process was forked from rank %d; a "
                         "worker's child cannot use the library",
                         hvd__context.topology.rank);
    pthread_mutex_lock(&life);
    if (!world.up)
        bring_up(&err);
    pthread_mutex_unlock(&life);
    return hvd__tell(&err);
}

int hvd_shutdown(void)
{
    if (hvd__forked())
        return 0;
    pthread_mutex_lock(&life);
    if (world.up) {
        atomic_store(&hvd__context.page->alive, 0);
        hvd__engine_close(&hvd__context.engine);
        say_goodbye();
        take_down();
    }
    pthread_mutex_unlock(&life);
    return 0;
}

/* A program that exits without hvd_shutdown leaves in order too: its peers
 * learn that it left, not that it died.  Other threads may still be inside
 * the library, so nothing is freed. */
static __attribute__((destructor)) void leave_at_exit(void)
{
    if (!hvd__alive() || pthread_mutex_trylock(&life) != 0)
        return;
    if (world.up && world.pid == getpid())
        say_goodbye();
    pthread_mutex_unlock(&life);
}

/* ---- Topology ------------------------------------------------------ */

int hvd_is_initialized(void)
{
    return hvd__alive();
}

const char *hvd_version(void)
{
    return HVD_VERSION;
}

static int topology(const int *value)
{
    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    return *value;
}

int hvd_rank(void)
{
    return topology(&hvd__context.topology.rank);
}

int hvd_size(void)
{
    return topology(&hvd__context.topology.size);
}

int hvd_local_rank(void)
{
    return topology(&hvd__context.topology.local_rank);
}

int hvd_local_size(void)
{
    return topology(&hvd__context.topology.local_size);
}

int hvd_cross_rank(void)
{
    return topology(&hvd__context.topology.cross_rank);
}

int hvd_cross_size(void)
{
    return topology(&hvd__context.topology.cross_size);
}
