/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP group for tests; see tcp_group.h. */
#include "tests/unit/tcp_group.h"

#include "lib/base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 120 };

static void need(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

static void prepare(struct tcp_group *g)
{
    memset(g->auth.secret, 7, sizeof(g->auth.secret));
    snprintf(g->auth.job_id, sizeof(g->auth.job_id), "job");
    g->auth.epoch = 1;
    g->flags = mmap(NULL, TCP_GROUP_MAX * sizeof(*g->flags),
                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(g->flags != MAP_FAILED && g->n <= TCP_GROUP_MAX, "prepare");
    for (int i = 0; i < g->n; i++) {
        uint16_t port = 0;

        need(hvd__tcp_listen("127.0.0.1", &g->listeners[i], &port, NULL) == 0,
             "listen");
        snprintf(g->hosts[i], sizeof(g->hosts[i]), "h%d", i);
        g->peers[i] = (struct hvd__tcp_peer){(uint32_t)(100 + i), g->hosts[i],
                                             "127.0.0.1", port};
    }
}

static void member(struct tcp_group *g, int me)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIMIT_S);
    for (int i = 0; i < g->n; i++)
        if (i != me)
            close(g->listeners[i]);
    exit(g->body(g, me));
}

int tcp_group_run(struct tcp_group *g)
{
    pid_t pids[TCP_GROUP_MAX];
    int failed = 0;

    prepare(g);
    fflush(NULL);
    for (int i = 0; i < g->n; i++) {
        pids[i] = fork();
        need(pids[i] >= 0, "fork");
        if (pids[i] == 0)
            member(g, i);
    }
    for (int i = 0; i < g->n; i++)
        close(g->listeners[i]);
    for (int i = 0; i < g->n; i++) {
        need(waitpid(pids[i], &g->wait_status[i], 0) == pids[i], "waitpid");
        failed += g->wait_status[i] != 0;
    }
    munmap((void *)g->flags, TCP_GROUP_MAX * sizeof(*g->flags));
    return failed;
}

int tcp_group_open(struct tcp_group *g, int me, int limit_ms,
                   struct hvd__tcp **t, struct hb_error *err)
{
    struct hvd__tcp_config config = {
        .peers = g->peers,
        .count = g->n,
        .me = me,
        .auth = &g->auth,
        .listener = g->listeners[me],
        .deadline_ns = hb_now_ns() + (uint64_t)limit_ms * 1000000,
        .agent_fd = -1,
    };

    return hvd__tcp_open(&config, t, err);
}

int tcp_group_finish(struct hvd__tcp *t, struct hb_error *err)
{
    int rc;

    while ((rc = hvd__tcp_progress(t, err)) == 0)
        hvd__tcp_pause(t);
    return rc;
}
