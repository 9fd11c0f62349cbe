/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP group for tests; see tcp_group.h. */
#include "tests/unit/tcp_group.h"

#include "lib/base/sys/clock.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LIMIT_S = 120 };

static void prepare(struct tcp_group *g)
{
    memset(g->auth.secret, 7, sizeof(g->auth.secret));
    snprintf(g->auth.job_id, sizeof(g->auth.job_id), "job");
    g->auth.epoch = 1;
    g->auth.codes = 1;
    g->flags = forked_shared(TCP_GROUP_MAX * sizeof(*g->flags));
    need(g->n <= TCP_GROUP_MAX, "prepare");
    for (int i = 0; i < g->n; i++) {
        uint16_t port = 0;

        need(hvd__tcp_listen("127.0.0.1", &g->listeners[i], &port, NULL) == 0,
             "listen");
        snprintf(g->hosts[i], sizeof(g->hosts[i]), "h%d", i);
        g->peers[i] = (struct hvd__tcp_peer){(uint32_t)(100 + i), g->hosts[i],
                                             "127.0.0.1", port};
    }
}

static int member(void *arg, int me)
{
    struct tcp_group *g = arg;

    for (int i = 0; i < g->n; i++)
        if (i != me)
            close(g->listeners[i]);
    return g->body(g, me);
}

int tcp_group_run(struct tcp_group *g)
{
    pid_t pids[TCP_GROUP_MAX];
    int failed;

    prepare(g);
    forked_start(g->n, LIMIT_S, member, g, pids);
    for (int i = 0; i < g->n; i++)
        close(g->listeners[i]);
    failed = forked_wait(g->n, pids, g->wait_status);
    munmap((void *)g->flags, TCP_GROUP_MAX * sizeof(*g->flags));
    return failed;
}

struct hvd__tcp_config tcp_group_config(const struct tcp_group *g, int me)
{
    return (struct hvd__tcp_config){.peers = g->peers,
                                    .count = g->n,
                                    .me = me,
                                    .auth = &g->auth,
                                    .listener = g->listeners[me],
                                    .deadline_ns = UINT64_MAX,
                                    .agent_fd = -1};
}

int tcp_group_open(struct tcp_group *g, int me, int limit_ms,
                   struct hvd__tcp **t, struct hb_error *err)
{
    struct hvd__tcp_config config = tcp_group_config(g, me);

    config.deadline_ns = hb_now_ns() + (uint64_t)limit_ms * 1000000;
    return hvd__tcp_open(&config, t, err);
}

void tcp_group_meet(struct tcp_group *g, int flag, int members)
{
    atomic_fetch_add(&g->flags[flag], 1);
    while (atomic_load(&g->flags[flag]) < members)
        usleep(1000);
}

void tcp_group_exchange(const struct tcp_group *g, struct hvd__tcp *t)
{
    static unsigned char all[TCP_GROUP_MAX][8], mine;
    static struct hvd__tcp_block blocks[TCP_GROUP_MAX];

    for (int i = 0; i < g->n; i++)
        blocks[i] = (struct hvd__tcp_block){all[i], sizeof(all[i])};
    hvd__tcp_exchange(t, &mine, 1, 1, blocks);
}

int tcp_group_finish(struct hvd__tcp *t, struct hb_error *err)
{
    int rc;

    while ((rc = hvd__tcp_progress(t, err)) == 0)
        hvd__tcp_pause(t, 0);
    return rc;
}
