/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From parsed options to a finished job: hosts, plan, agent, environment,
 * signals, loop.
 *
 * Order matters for speed: the agent is started first, and what only its
 * LAUNCH message needs (the environments) is prepared while it starts.
 *
 * Signals that were ignored when hvdrun was started (nohup; a background
 * job of a shell without job control) stay ignored here.  The ranks, which
 * no terminal reaches, start with every signal at its default.
 *
 * Should agent and guardian be killed at once, this process inherits what
 * they left, being a subreaper, and kills it at the end.
 */
#include "cmd/hvdrun/run.h"

#include "cmd/hvdrun/dryrun.h"
#include "cmd/hvdrun/reach.h"
#include "lib/agent/tree.h"
#include "lib/base/alloc.h"
#include "lib/job/job.h"
#include "lib/job/worker_env.h"
#include "lib/job/xbuf.h"
#include "lib/transport/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT, SIGUSR1,
                              SIGUSR2, SIGTSTP, SIGWINCH, SIGCONT};

enum {
    SIGNALS = sizeof(signals) / sizeof(signals[0]),
    RUN_FILES_MIN = 16, /* descriptors that this process needs */
};

struct run {
    const struct options *options;
    struct hb_log log; /* through the job, while there is one */
    struct hostlist hosts;
    struct plan plan;
    unsigned char *host_is_local; /* [plan.host_count] */
    int local_hosts;
    struct remote_options remote_options;
    struct remote *remote; /* NULL: every host is this machine */
    char *plugin_dir;
    char *agent_path;
    char *cwd;
    struct job_config config;
    uv_loop_t loop;
    int signal_fd;
    uv_poll_t signal_poll;
    sigset_t signals; /* those of `signals` that were not ignored */
    struct job *job;
    int done;
    int exit_code;
};

/* ---- Hosts and plan ---- */

/* -np alone: this machine, by name, with as many slots. */
static int hosts_here(struct run *run, const char *hostname,
                      struct hb_error *err)
{
    char *text = hb_xasprintf("%s:%d", hostname, run->options->num_proc);
    int rc = hostlist_parse(text, &run->hosts, NULL);

    hb_free(text);
    if (rc == 0)
        return 0;
    /* A host name that is no valid host name. */
    text = hb_xasprintf("localhost:%d", run->options->num_proc);
    rc = hostlist_parse(text, &run->hosts, err);
    hb_free(text);
    return rc;
}

static int make_plan(struct run *run, const char *hostname,
                     struct hb_error *err)
{
    const struct options *o = run->options;
    int rc;

    if (o->hosts)
        rc = hostlist_parse(o->hosts, &run->hosts, err);
    else if (o->hostfile)
        rc = hostlist_read_file(o->hostfile, &run->hosts, err);
    else
        rc = hosts_here(run, hostname, err);
    if (rc < 0)
        return rc;
    return plan_make(&run->hosts,
                     &(struct plan_options){.num_proc = o->num_proc,
                                            .map = o->map,
                                            .npernode = o->npernode,
                                            .oversubscribe = o->oversubscribe},
                     &run->plan, err);
}

static void find_local(struct run *run, const char *hostname)
{
    run->host_is_local = hb_xcalloc((size_t)run->plan.host_count, 1);
    for (int i = 0; i < run->plan.host_count; i++) {
        run->host_is_local[i] =
            (unsigned char)reach_is_local(run->plan.hosts[i].entry, hostname);
        run->local_hosts += run->host_is_local[i];
    }
}

/* Other hosts' directories are for their agents to check. */
static int check_wdir(const struct run *run, struct hb_error *err)
{
    const char *path = run->options->wdir;
    struct stat st;

    if (!path || !run->local_hosts)
        return 0;
    if (stat(path, &st) < 0)
        return hb_error_sys(err, errno, "--wdir '%s'", path);
    if (!S_ISDIR(st.st_mode))
        return hb_error_set(err, HVD_EINVAL, "--wdir '%s': is not a directory",
                            path);
    if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
        return hb_error_sys(err, errno, "--wdir '%s'", path);
    return 0;
}

static int run_plan(struct run *run, struct hb_error *err)
{
    char hostname[HOST_NAME_MAX + 1] = "localhost";
    int rc;

    gethostname(hostname, sizeof(hostname) - 1);
    rc = make_plan(run, hostname, err);
    if (rc == 0 && run->options->stdin_rank >= run->plan.size)
        rc = hb_error_set(err, HVD_EINVAL,
                          "--stdin %d: there are only ranks 0 to %d",
                          run->options->stdin_rank, run->plan.size - 1);
    if (rc < 0)
        return rc;
    find_local(run, hostname);
    return check_wdir(run, err);
}

/* ---- Paths ---- */

static int find_cwd(struct run *run, struct hb_error *err)
{
    char path[PATH_MAX];

    if (!run->options->wdir && !getcwd(path, sizeof(path)))
        return hb_error_sys(err, errno,
                            "the current directory cannot be used (see "
                            "--wdir)");
    run->cwd = hb_xstrdup(run->options->wdir ? run->options->wdir : path);
    return 0;
}

/* ---- Other hosts ---- */

static int open_remote(struct run *run, struct hb_error *err)
{
    const struct options *o = run->options;

    if (run->local_hosts == run->plan.host_count)
        return 0;
    run->plugin_dir = reach_plugin_dir();
    reach_options(o, run->agent_path, run->plugin_dir, &run->remote_options);
    return remote_new(&run->loop, &run->log, &run->remote_options, &run->remote,
                      err);
}

/* ---- The job's description ---- */

static int fill_random(struct job_config *config, struct hb_error *err)
{
    unsigned char random[sizeof(config->secret) + 16];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return hb_error_sys(err, errno, "random bytes for the job");
    memcpy(config->secret, random, sizeof(config->secret));
    for (size_t i = 0; i < 16; i++)
        snprintf(config->job_id + 2 * i, 3, "%02x",
                 random[sizeof(config->secret) + i]);
    explicit_bzero(random, sizeof(random));
    return 0;
}

static unsigned want_color(const struct options *o)
{
    const char *term = NULL;
    struct hb_strv env = {environ, 0, 0};
    const char *no_color;
    unsigned color;

    while (environ[env.count])
        env.count++;
    no_color = hb_env_get(&env, "NO_COLOR");
    term = hb_env_get(&env, "TERM");
    if (!o->tag || (no_color && *no_color) || !term ||
        strcmp(term, "dumb") == 0)
        return 0;
    color = isatty(1) ? 1u : 0u;
    return color | (isatty(2) ? 2u : 0u);
}

/* With --timeline-filename each rank's own is written on its host, and
 * hvdrun's agents collect them; without, and with DYNAMIC, it is the ranks'
 * business. */
static const char *find_timeline(const struct options *o)
{
    const char *path = hb_env_get(&o->knobs, "HVD_TIMELINE");

    return path && strcmp(path, "DYNAMIC") != 0 ? path : NULL;
}

static int fill_config(struct run *run, struct hb_error *err)
{
    const struct options *o = run->options;

    if (find_cwd(run, err) < 0)
        return err->status;
    run->agent_path = reach_agent_path(o);
    run->config = (struct job_config){
        .loop = &run->loop,
        .log = &run->log,
        .plan = &run->plan,
        .agent_path = run->agent_path,
        .host_is_local = run->host_is_local,
        .progress = isatty(2),
        .heartbeat_ms =
            o->heartbeat_ms < INT_MAX ? (int)o->heartbeat_ms : INT_MAX,
        .network_interfaces = o->network_interfaces,
        .argv = o->command,
        .cwd = run->cwd,
        .bind = o->bind,
        .gpus_per_rank = o->gpus_per_rank,
        .bind_gpu = o->bind_gpu,
        .share_gpus = o->oversubscribe_gpu,
        .grace_ms = o->grace_ms < INT_MAX ? (int)o->grace_ms : INT_MAX,
        .start_timeout_ms = o->start_timeout_ms,
        .timeout_ms = o->timeout_ms,
        .stdin_rank = o->stdin_rank,
        .tag = o->tag,
        .timestamp = o->timestamp,
        .color = want_color(o),
        .output_dir = o->output_filename,
        .timeline = find_timeline(o),
        .stats = hb_env_get(&o->knobs, "HVD_STATS") != NULL,
    };
    return fill_random(&run->config, err);
}

static int common_env(const struct options *o, int remote, struct hb_strv *env,
                      struct hb_error *err)
{
    struct worker_env_config config = {
        .inherited = environ,
        .no_env = o->no_env,
        .remote = remote,
        .knobs = &o->knobs,
        .set_env = &o->set_env,
    };

    return worker_env_common(&config, env, err);
}

/* Out of memory is its only failure. */
static void fill_env(struct run *run)
{
    struct job_config *config = &run->config;

    hb_must(common_env(run->options, 0, &config->env, NULL));
    if (run->remote)
        hb_must(common_env(run->options, 1, &config->remote_env, NULL));
    config->rank_env =
        hb_xcalloc((size_t)run->plan.size, sizeof(*config->rank_env));
    for (int rank = 0; rank < run->plan.size; rank++)
        hb_must(worker_env_rank(&run->plan, rank, config->job_id, &config->env,
                                &config->rank_env[rank], NULL));
}

static void run_fini(struct run *run)
{
    struct job_config *config = &run->config;

    job_free(run->job);
    for (int i = 0; config->rank_env && i < run->plan.size; i++)
        hb_strv_free(&config->rank_env[i]);
    hb_free(config->rank_env);
    hb_strv_free(&config->env);
    hb_strv_free(&config->remote_env);
    explicit_bzero(config->secret, sizeof(config->secret));
    hb_free(run->agent_path);
    hb_free(run->plugin_dir);
    hb_free(run->host_is_local);
    hb_free(run->cwd);
    plan_free(&run->plan);
    hostlist_free(&run->hosts);
}

/* ---- Signals ---- */

/* Only that of a process of this namespace has a pid; what the kernel
 * sends, for a terminal for one, has none. */
static char *sender_of(const struct signalfd_siginfo *info)
{
    pid_t pid = (pid_t)info->ssi_pid;
    struct tree_proc proc;

    if (info->ssi_code == SI_KERNEL || pid <= 0)
        return NULL;
    if (!tree_stat(pid, &proc))
        return hb_xasprintf("pid %d", (int)pid);
    return hb_xasprintf("pid %d (%s)", (int)pid, proc.name);
}

/* The default action stops this process, or does nothing where no shell
 * could ever continue it. */
static void stop_here(void *arg)
{
    sigset_t set;

    (void)arg;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

static void on_signal(struct run *run, const struct signalfd_siginfo *info)
{
    int signo = (int)info->ssi_signo;
    char *sender = sender_of(info);

    job_signal(run->job, signo, sender);
    hb_free(sender);
}

static void on_signals(uv_poll_t *poll, int status, int events)
{
    struct run *run = poll->data;
    struct signalfd_siginfo info;

    (void)status;
    (void)events;
    while (!run->done &&
           read(run->signal_fd, &info, sizeof(info)) == sizeof(info))
        on_signal(run, &info);
}

/* From here on signals wait, also while the agent is started, until the
 * loop looks; they are let through again when it has ended. */
static int open_signals(struct run *run, struct hb_error *err)
{
    int rc;

    sigemptyset(&run->signals);
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction old;

        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&run->signals, signals[i]);
    }
    run->signal_fd = signalfd(-1, &run->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signal_fd < 0)
        return hb_error_sys(err, errno, "signalfd");
    rc = uv_poll_init(&run->loop, &run->signal_poll, run->signal_fd);
    if (rc < 0) {
        close(run->signal_fd);
        return hb_error_sys(err, -rc, "signalfd");
    }
    run->signal_poll.data = run;
    uv_poll_start(&run->signal_poll, UV_READABLE, on_signals);
    sigprocmask(SIG_BLOCK, &run->signals, NULL);
    return 0;
}

/* The loop has ended. */
static void close_signals(struct run *run)
{
    close(run->signal_fd);
    sigprocmask(SIG_UNBLOCK, &run->signals, NULL);
}

/* ---- Running ---- */

static void on_log(void *arg, enum hb_log_level level, const char *line)
{
    struct run *run = arg;

    (void)level;
    job_print(run->job, line);
}

static void on_done(void *arg, int exit_code)
{
    struct run *run = arg;

    run->done = 1;
    run->log.sink = NULL;
    run->exit_code = exit_code;
    uv_close((uv_handle_t *)&run->signal_poll, NULL);
}

/* libuv aborts where it cannot have its descriptors. */
static int open_loop(struct run *run, struct hb_error *err)
{
    struct rlimit files = {RUN_FILES_MIN, RUN_FILES_MIN};
    int rc;

    run->exit_code = JOB_EXIT_LAUNCHER;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < RUN_FILES_MIN)
        return hb_error_set(err, HVD_ESYSTEM,
                            "the limit on open files is %d, hvdrun needs %d "
                            "(see ulimit -n)",
                            (int)files.rlim_cur, RUN_FILES_MIN);
    rc = uv_loop_init(&run->loop);
    if (rc < 0)
        return hb_error_sys(err, -rc, "cannot start the event loop");
    rc = open_signals(run, err);
    if (rc < 0) {
        uv_loop_close(&run->loop);
        return rc;
    }
    run->exit_code = 0;
    return 0;
}

/* The children of a shell that became this program with exec are not
 * touched: they are not marked as the job's. */
static void kill_leftovers(const struct run *run)
{
    char *mark;

    if (!tree_has_children())
        return;
    mark = hb_xasprintf("HVD_JOB_ID=%s", run->config.job_id);
    tree_kill_marked(mark);
    hb_free(mark);
}

static int run_loop(struct run *run, struct hb_error *err)
{
    int rc = open_loop(run, err);

    if (rc < 0)
        return rc;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = open_remote(run, err);
    run->config.remote = run->remote;
    run->config.on_stop = stop_here;
    if (rc == 0)
        rc = job_start(&run->config, on_done, run, &run->job, err);
    if (rc == 0) {
        run->log.sink = on_log;
        run->log.sink_arg = run;
        fill_env(run);
    } else {
        uv_close((uv_handle_t *)&run->signal_poll, NULL);
    }
    uv_run(&run->loop, UV_RUN_DEFAULT);
    close_signals(run);
    if (rc == 0)
        kill_leftovers(run);
    remote_free(run->remote);
    uv_loop_close(&run->loop);
    return rc;
}

/* hvdrun's exit code; rc and err tell what failed here. */
static int run_end(struct run *run, int rc, const struct hb_error *err,
                   const struct hb_log *log)
{
    if (rc < 0) {
        hb_log(log, HB_LOG_ERROR, "%s", err->text);
        if (run->exit_code == 0)
            run->exit_code = EXIT_USAGE;
    }
    run_fini(run);
    return run->exit_code;
}

int run_job(const struct options *o, const struct hb_log *log)
{
    struct run run = {.options = o, .log = *log};
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    /* A closed pipe and a file that may not grow are told by the write,
     * for each stream. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    rc = run_plan(&run, &err);
    if (rc == 0)
        rc = fill_config(&run, &err);
    if (rc == 0)
        rc = run_loop(&run, &err);
    return run_end(&run, rc, &err, log);
}

static int print_plan(struct run *run, struct hb_error *err)
{
    struct hb_strv env = HB_STRV_INIT;
    struct hb_buf text = HB_BUF_INIT;
    int rc = common_env(run->options, 0, &env, err);

    if (rc == 0)
        rc = find_cwd(run, err);
    if (rc == 0)
        rc = dryrun_here(run->options, &run->plan, &env, run->cwd, &text, err);
    if (rc == 0 &&
        (fputs(hb_buf_data(&text), stdout) < 0 || fflush(stdout) != 0)) {
        run->exit_code = JOB_EXIT_LAUNCHER;
        rc = hb_error_sys(err, errno, "write to stdout");
    }
    hb_buf_free(&text);
    hb_strv_free(&env);
    return rc;
}

int run_dry(const struct options *o, const struct hb_log *log)
{
    struct run run = {.options = o, .log = *log};
    struct hb_error err = HB_ERROR_INIT;
    int rc = run_plan(&run, &err);

    if (rc == 0)
        rc = print_plan(&run, &err);
    return run_end(&run, rc, &err, log);
}
