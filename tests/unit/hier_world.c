/* SPDX-License-Identifier: Apache-2.0 */
/* Hierarchical planes for tests; see hier_world.h. */
#include "tests/unit/hier_world.h"

#include "lib/base/sys/clock.h"
#include "runtime/plane/shm/shm.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LIMIT_S = 120 };

/* ---- Before the ranks are there ------------------------------------------ */

static void make_map(struct hier_world *w)
{
    uint32_t host_of[HIER_WORLD_MAX] = {0};
    int hosts = 0;

    w->size = (int)strlen(w->place);
    need(w->size <= HIER_WORLD_MAX, "place");
    for (int r = 0; r < w->size; r++) {
        host_of[r] = (uint32_t)(w->place[r] - 'a');
        hosts = (int)host_of[r] >= hosts ? (int)host_of[r] + 1 : hosts;
    }
    need(hvd__map_init(&w->map, w->size, hosts, host_of, HVD__SHM_LOCAL_MAX,
                       NULL) == 0,
         "map");
    for (int i = 0; i < hosts; i++) {
        char name[] = {'h', (char)('a' + i), '\0'};

        hvd__map_name(&w->map, i, name);
    }
}

static void prepare(struct hier_world *w)
{
    make_map(w);
    w->flags = forked_shared(HIER_WORLD_MAX * sizeof(*w->flags));
    for (int i = 0; i < w->map.hosts; i++) {
        int local = hvd__map_local_size(&w->map, i);
        uint64_t bytes = hvd__shm_segment_bytes(local);

        w->heads[i] = forked_shared(bytes);
        segment_head_init(w->heads[i], 1, (uint32_t)local, bytes);
    }
    for (int r = 0; r < w->size; r++)
        need(hvd__tcp_listen("127.0.0.1", &w->listeners[r], &w->ports[r],
                             NULL) == 0,
             "listen");
}

static void clean_up(struct hier_world *w)
{
    for (int i = 0; i < w->map.hosts; i++)
        munmap(w->heads[i],
               hvd__shm_segment_bytes(hvd__map_local_size(&w->map, i)));
    munmap((void *)w->flags, HIER_WORLD_MAX * sizeof(*w->flags));
    hvd__map_fini(&w->map);
}

/* ---- A rank -------------------------------------------------------------- */

static int local_rank(const struct hier_world *w, int rank)
{
    int host = (int)w->map.host_of[rank], l = 0;

    while ((int)hvd__map_rank(&w->map, host, l) != rank)
        l++;
    return l;
}

static const char *host_of(void *arg, uint32_t rank)
{
    const struct hier_world *w = arg;

    return hvd__map_host_name(&w->map, rank);
}

static struct hvd__tcp *open_lane(struct hier_world *w, int rank)
{
    struct hvd__tcp_peer peers[HIER_WORLD_MAX];
    struct tcp_auth auth = {.job_id = "job", .epoch = 1};
    struct hvd__tcp_config config = {
        .peers = peers,
        .count = w->map.hosts,
        .me = (int)w->map.host_of[rank],
        .auth = &auth,
        .listener = w->listeners[rank],
        .deadline_ns = hb_now_ns() + LIMIT_S * UINT64_C(1000000000),
        .agent_fd = -1,
        .host_of = host_of,
        .arg = w,
    };
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tcp *t = NULL;
    int lane = local_rank(w, rank);

    if (lane >= w->map.lanes) {
        close(w->listeners[rank]);
        return NULL;
    }
    for (int i = 0; i < w->map.hosts; i++) {
        uint32_t peer = hvd__map_rank(&w->map, i, lane);

        peers[i] = (struct hvd__tcp_peer){peer, w->map.names[i], "127.0.0.1",
                                          w->ports[peer]};
    }
    need(hvd__tcp_open(&config, &t, &err) == 0, err.text);
    return t;
}

static struct hvd__plane *open_shm(const struct hier_world *w, int rank)
{
    int host = (int)w->map.host_of[rank];
    int group[HIER_WORLD_MAX], n = hvd__map_local_size(&w->map, host);
    const uint32_t *ranks = w->map.ranks + w->map.first[host];
    struct hvd__shm_config config = {
        .head = w->heads[host],
        .local_rank = local_rank(w, rank),
        .local_size = n,
        .world_ranks = ranks,
        .group_ranks = group,
        .host = w->map.names[host],
        .cpus = 2,
        .agent_arg = (void *)(uintptr_t)w,
        .host_of = host_of,
    };
    struct hvd__plane *p;

    for (int l = 0; l < n; l++)
        group[l] = (int)ranks[l];
    if (n == 1)
        return NULL;
    p = hvd__shm_new(&config);
    need(p != NULL, "shm");
    return p;
}

static int member(void *arg, int rank)
{
    struct hier_world *w = arg;
    struct hvd__hier_config config = {.map = &w->map, .rank = (uint32_t)rank};
    int host = (int)w->map.host_of[rank], failed;
    struct hvd__plane *p;

    for (int r = 0; r < w->size; r++)
        if (r != rank)
            close(w->listeners[r]);
    config.tcp = open_lane(w, rank);
    config.shm = open_shm(w, rank);
    config.head = w->heads[host];
    config.segment_ranks = (uint32_t)hvd__map_local_size(&w->map, host);
    p = hvd__hier_new(&config);
    need(p != NULL, "hier");
    failed = w->body(w, p, rank);
    p->ops->leave(p);
    p->ops->free(p);
    clean_up(w);
    return failed;
}

int hier_world_run(struct hier_world *w)
{
    pid_t pids[HIER_WORLD_MAX];
    int failed;

    prepare(w);
    forked_start(w->size, LIMIT_S, member, w, pids);
    for (int r = 0; r < w->size; r++)
        close(w->listeners[r]);
    failed = forked_wait(w->size, pids, w->wait_status);
    clean_up(w);
    return failed;
}

/* ---- Operations ---------------------------------------------------------- */

struct hvd__op hier_world_op(enum hvd__kind kind, enum hvd_dtype dtype,
                             uint64_t signature, struct hb_error *err)
{
    struct hvd__op op;

    memset(&op, 0, sizeof(op));
    hb_error_clear(err);
    op.kind = kind;
    op.dtype = op.part_dtype = dtype;
    op.elem_bytes = hvd_dtype_size(dtype);
    op.prescale = op.postscale = 1.0;
    op.row_elems = 1;
    op.name = "";
    op.signature = op.first_signature = signature;
    op.entries = 1;
    op.args = (struct hvd__reduce_args){1.0, 1.0, 1, 0};
    op.err = err;
    return op;
}
