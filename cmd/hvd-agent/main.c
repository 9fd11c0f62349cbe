/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd-agent: runs the ranks of a job on this host.
 *
 * hvdrun starts it, here or over ssh, and speaks the control protocol with
 * it on its stdin and stdout; nobody calls it by hand.  It forks once: the
 * parent is the guardian, which sleeps and cleans up whatever happens to
 * the agent (lib/agent/guardian.h), the child the agent.
 */
#include "lib/agent/agent.h"
#include "lib/agent/guardian.h"
#include "lib/base/alloc.h"
#include "lib/protocol/agent_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EXIT_TROUBLE = 125, EXIT_USAGE = 2 };

static int trouble(const char *what)
{
    dprintf(2, "hvd-agent: %s: %s\n", what, strerror(errno));
    return EXIT_TROUBLE;
}

/* 0, 1 and 2 must be open, or pipes of workers would land there. */
static void fill_stdio(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
    /* Whatever else was inherited is none of ours, nor the workers'. */
    syscall(SYS_close_range, 3u, ~0u, 0u);
}

/* Default dispositions, and everything blocked but what a fault raises. */
static void set_signals(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                 SIGABRT, SIGTRAP, SIGSYS};
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t set;

    for (int s = 1; s < NSIG; s++)
        sigaction(s, &dfl, NULL);
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&set, faults[i]);
    sigprocmask(SIG_SETMASK, &set, NULL);
}

static int run_agent(uv_loop_t *loop, struct guardian_shared *shared)
{
    struct agent_config config = {
        .loop = loop,
        .in_fd = 0,
        .out_fd = 1,
        .grace_ms = &shared->grace_ms,
        .silence_ms = &shared->silence_ms,
    };
    struct hb_error err = HB_ERROR_INIT;
    struct rlimit more;
    struct agent *agent;

    getrlimit(RLIMIT_NOFILE, &config.nofile);
    more = config.nofile;
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
    if (agent_start(&config, &agent, &err) < 0) {
        dprintf(2, "hvd-agent: %s\n", err.text);
        return EXIT_TROUBLE;
    }
    uv_run(loop, UV_RUN_DEFAULT);
    return agent_finish(agent);
}

/* SIGTERM, not SIGKILL, when the guardian dies: the agent then ends the
 * job itself. */
static int agent_main(pid_t guardian, struct guardian_shared *shared)
{
    uv_loop_t loop;
    int rc;

    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return trouble("prctl");
    if (getppid() != guardian)
        return EXIT_TROUBLE;
    rc = uv_loop_init(&loop);
    if (rc < 0) {
        errno = -rc;
        return trouble("event loop");
    }
    rc = run_agent(&loop, shared);
    uv_loop_close(&loop);
    return rc;
}

/* ---- Sent by hvdrun (lib/transport/bootstrap.sh) ---- */

/* Has it arrived as it was sent? */
static int check_self(const char *hash)
{
    char ours[AGENT_HASH_HEX];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    errno = fd < 0 ? errno : agent_hash_fd(fd, ours);
    if (errno)
        return trouble("/proc/self/exe");
    if (strcmp(hash, ours) == 0)
        return 0;
    dprintf(2, "hvd-agent: it arrived altered\n");
    return 1;
}

/* One that is kept is marked as used, so that the newest stay; the other
 * leaves nothing behind.  Nothing depends on whether that works. */
static void settle(int remove_self, const char *dir)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (n > 0 && remove_self) {
        path[n] = '\0';
        unlink(path);
        if (chdir("/") == 0)
            rmdir(dirname(path));
    } else {
        utimensat(AT_FDCWD, "/proc/self/exe", NULL, 0);
    }
    if (chdir(dir) < 0 && chdir("/") < 0)
        return;
}

int main(int argc, char **argv)
{
    struct guardian_shared *shared;
    struct cgroup cgroup;
    pid_t guardian, agent;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("hvd-agent %s\n", HVD_VERSION);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--check") == 0)
        return check_self(argv[2]);
    if (argc == 3 && (strcmp(argv[1], "--pushed") == 0 ||
                      strcmp(argv[1], "--remove-self") == 0)) {
        settle(argv[1][2] == 'r', argv[2]);
    } else if (argc > 1) {
        dprintf(2, "hvd-agent: takes no arguments but --version; hvdrun "
                   "starts it\n");
        return EXIT_USAGE;
    }
    json_set_alloc_funcs(hb_xmalloc, hb_free);
    fill_stdio();
    set_signals();
    prctl(PR_SET_NAME, "hvd-agent"); /* whatever its file is called */
    (void)setsid();                  /* fails when it leads a group: as good */
    shared = guardian_share();
    if (!shared)
        return trouble("shared memory");
    /* SIGCONT, so that a stopped guardian sees hvdrun die. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGCONT) < 0)
        return trouble("prctl");
    guardian = getpid();
    cgroup_open(&cgroup, "");
    agent = cgroup_fork(&cgroup);
    if (agent < 0)
        return trouble("fork");
    if (agent == 0)
        return agent_main(guardian, shared);
    close(1);
    return guardian_run(agent, 0, shared, &cgroup);
}
