/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of one test; see forked.h. */
#include "tests/unit/forked.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void need(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

void *forked_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    need(p != MAP_FAILED, "mmap");
    return p;
}

void forked_start(int n, int limit_s, int (*member)(void *arg, int i),
                  void *arg, pid_t *pids)
{
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        need(pids[i] >= 0, "fork");
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm((unsigned)limit_s);
            exit(member(arg, i));
        }
    }
}

int forked_wait(int n, const pid_t *pids, int *wait_status)
{
    int failed = 0;

    for (int i = 0; i < n; i++) {
        need(waitpid(pids[i], &wait_status[i], 0) == pids[i], "waitpid");
        failed += wait_status[i] != 0;
    }
    return failed;
}

int plane_do(struct hvd__plane *plane, struct hvd__op *op)
{
    int rc = plane->ops->start(plane, op);

    if (rc < 0)
        return rc;
    while ((rc = plane->ops->progress(plane, op)) == 0)
        plane->ops->pause(plane, 0);
    return rc;
}
