/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/guardian.h with a child as the agent.  How guardians end jobs is
 * tested with whole agents, in tests/system. */
#include "lib/agent/guardian.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Runs a guardian whose agent exits with exit_code; returns the guardian's. */
static int run_guardian(int exit_code)
{
    struct guardian_shared *shared = guardian_share();
    struct cgroup cgroup = {.fd = -1};
    sigset_t set;
    int fds[2], status;
    pid_t agent;

    ck_assert_ptr_nonnull(shared);
    ck_assert_int_eq(pipe(fds), 0);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    agent = fork();
    if (agent == 0)
        _exit(exit_code);
    ck_assert_int_gt(agent, 0);
    status = guardian_run(agent, fds[0], shared, &cgroup);
    close(fds[1]);
    munmap(shared, sizeof(*shared));
    return status;
}

START_TEST(exit_code_is_the_agents)
{
    ck_assert_int_eq(run_guardian(0), 0);
    ck_assert_int_eq(run_guardian(7), 7);
}
END_TEST

/* A guardian that exits gets no signal when its parent dies.  SIGCONT would
 * hang a leak check that attaches to it. */
START_TEST(parent_may_die_at_exit)
{
    int signo = -1;

    ck_assert_int_eq(prctl(PR_SET_PDEATHSIG, SIGCONT), 0);
    run_guardian(0);
    ck_assert_int_eq(prctl(PR_GET_PDEATHSIG, &signo), 0);
    ck_assert_int_eq(signo, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guardian");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, exit_code_is_the_agents);
    tcase_add_test(tc, parent_may_die_at_exit);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
