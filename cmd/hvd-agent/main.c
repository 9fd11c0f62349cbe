/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd-agent: runs the ranks of a job on this host.
 *
 * hvdrun starts it, here or over ssh, and speaks the control protocol with it
 * on its stdin and stdout; nobody calls it by hand.  It forks once: the parent
 * is the guardian, which sleeps and cleans up even if the agent is killed
 * (lib/agent/guardian.h); the child is the agent.
 */
#include "lib/agent/agent.h"
#include "lib/agent/detach.h"
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

/* Opens descriptors 0, 1 and 2 if closed, or pipes to workers would get these
 * numbers. */
static void fill_stdio(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
    /* Close what else was inherited: neither we nor the workers need it. */
    syscall(SYS_close_range, 3u, ~0u, 0u);
}

/* Resets signals to their defaults and blocks all but those that faults
 * raise. */
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
        .trace_dir = shared->trace_dir,
        .wireup_dir = shared->wireup_dir,
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

/* Asks for SIGTERM when the guardian dies: the agent then ends the job. */
static int agent_main(pid_t guardian, struct guardian_shared *shared)
{
    uv_loop_t loop;
    int rc;

    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return trouble("prctl");
    if (getppid() != guardian)
        return EXIT_TROUBLE;
    /* The guardian could not begin a session if it leads a process group. */
    if (getsid(0) != guardian && setsid() < 0)
        return trouble("setsid");
    rc = uv_loop_init(&loop);
    if (rc < 0) {
        errno = -rc;
        return trouble("event loop");
    }
    rc = run_agent(&loop, shared);
    uv_loop_close(&loop);
    return rc;
}

/* ---- Sent by hvdrun (lib/remote/bootstrap.sh) ---- */

/* Checks that this file is as it was sent.  If it has just arrived, syncs it,
 * too: it was renamed first, so a power cut might otherwise leave its name
 * without its bytes. */
static int check_self(const char *hash, int sync)
{
    char ours[AGENT_HASH_HEX];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    errno = fd < 0 ? errno : agent_hash_fd(fd, ours);
    if (errno)
        return trouble("/proc/self/exe");
    if (strcmp(hash, ours) != 0) {
        dprintf(2, "hvd-agent: it arrived altered\n");
        return 1;
    }
    /* Some file systems cannot sync, or not a file that is open for reading
     * only. */
    if (sync && fsync(fd) < 0 && errno != EINVAL && errno != EBADF &&
        errno != EROFS)
        return trouble("fsync");
    return 0;
}

/* Marks this file as used, so that the newest files are kept; or removes it
 * and its directory.  Failures do not matter. */
static void mark_used_or_remove(int remove_self, const char *dir)
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
    if ((argc == 3 || argc == 4) && strcmp(argv[1], "--check") == 0)
        return check_self(argv[2], argc == 4);
    if (argc == 3 && (strcmp(argv[1], "--pushed") == 0 ||
                      strcmp(argv[1], "--remove-self") == 0)) {
        mark_used_or_remove(argv[1][2] == 'r', argv[2]);
    } else if (argc > 1) {
        dprintf(2, "hvd-agent: takes no arguments but --version; hvdrun "
                   "starts it\n");
        return EXIT_USAGE;
    }
    json_set_alloc_funcs(hb_xmalloc, hb_free_wiped);
    fill_stdio();
    set_signals();
    (void)detach_from_file(0);
    prctl(PR_SET_NAME, "hvd-agent"); /* regardless of the file's name */
    (void)setsid();                  /* fails for a group leader; see
                                        agent_main() */
    shared = guardian_share();
    if (!shared)
        return trouble("shared memory");
    /* SIGCONT: even a stopped guardian then notices that hvdrun died. */
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
