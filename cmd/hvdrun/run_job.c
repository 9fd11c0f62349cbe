/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From parsed options to a finished job: hosts, plan, agent, environment,
 * signals, loop.
 *
 * Signals that were ignored when hvdrun was started (nohup; a background job
 * of a shell without job control) stay ignored here.  The ranks, which have no
 * terminal, start with every signal at its default.
 *
 * This process is a subreaper: if agent and guardian are both killed, it
 * inherits their children and kills them at the end.
 */
#include "cmd/hvdrun/run_job.h"

#include "cmd/hvdrun/dryrun.h"
#include "cmd/hvdrun/growth.h"
#include "cmd/hvdrun/host_plan.h"
#include "cmd/hvdrun/main_loop.h"
#include "cmd/hvdrun/reach.h"
#include "cmd/hvdrun/terminal.h"
#include "lib/agent/rank/tree.h"
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/job/discovery/discovery.h"
#include "lib/job/job.h"
#include "lib/job/output/xbuf.h"
#include "lib/job/serve/serve_plugin.h"
#include "lib/job/serve/serve_request.h"
#include "lib/job/worker_env.h"
#include "lib/remote/remote.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT, SIGUSR1,
                              SIGUSR2, SIGTSTP, SIGWINCH, SIGCONT};

enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

struct run {
    const struct options *options;
    struct hb_log log; /* goes through the job while there is one */
    struct hostlist hosts;
    struct hostlist found;     /* as they were read, to compare with others */
    struct hb_strv aliases;    /* pairs: a name of a host, and its first one */
    struct host_origin origin; /* of the hosts */
    struct plan plan;
    unsigned char *host_is_local; /* [plan.host_count] */
    int *same_as;                 /* [plan.host_count]; see job_config */
    int local_hosts;
    char *agent_path;
    char *cwd;
    char *http_plugin; /* NULL: it is not needed */
    char *http_token;  /* NULL: the user has chosen none */
    struct job_config config;
    struct main_loop main;
    struct job *job;
    struct discoverer *discoverer; /* NULL: the hosts stay as they are */
    char hostname[HOST_NAME_MAX + 1];
    int exit_code;
};

/* ---- Hosts and plan ---- */

/* Returns the first name of the host that has this one, too; NULL: unknown. */
static const char *first_name(const struct run *run, const char *name)
{
    for (size_t i = 0; i + 1 < run->aliases.count; i += 2)
        if (strcasecmp(run->aliases.items[i], name) == 0)
            return run->aliases.items[i + 1];
    return NULL;
}

/* Merges two names of one host, so that its ranks are numbered together. */
static int merge(struct run *run, struct hostlist *l, enum hb_log_level level,
                 size_t into, size_t from, struct hb_error *err)
{
    hb_log(&run->log, level, "host %s: counted as host %s, which it is",
           l->entries[from].name, l->entries[into].name);
    if (!first_name(run, l->entries[from].name)) {
        hb_must(hb_strv_add(&run->aliases, l->entries[from].name));
        hb_must(hb_strv_add(&run->aliases, l->entries[into].name));
    }
    return hostlist_merge(l, into, from, err);
}

static int is_local(void *arg, const struct host_entry *entry)
{
    const struct run *run = arg;

    return reach_is_local(entry, run->hostname);
}

/* Merges names of this machine; other hosts' agents report theirs. */
static int merge_local(struct run *run, struct hostlist *l,
                       struct hb_error *err)
{
    size_t first = l->count;
    int rc = 0;

    for (size_t i = 0; rc == 0 && l->count > 1 && i < l->count; i++) {
        if (!is_local(run, &l->entries[i]))
            continue;
        if (first > i)
            first = i;
        else
            rc = merge(run, l, HB_LOG_INFO, first, i--, err);
    }
    return rc;
}

/* Returns the name by which the plan has the host; see job_config. */
static const char *known_name(void *arg, const char *name)
{
    const struct run *run = arg;
    const struct host_entry entry = {.name = (char *)name};
    const char *first = first_name(run, name);

    for (int i = 0; i < run->plan.host_count; i++)
        if (run->host_is_local[i] && is_local(arg, &entry))
            return run->plan.hosts[i].entry->name;
    return first ? first : name;
}

/* Returns 0, a positive exit code if a signal came, or negative. */
static int read_hosts(struct run *run, struct hb_error *err)
{
    const struct options *o = run->options;
    int rc = o->discovery_script
                 ? growth_discover(o, &run->log, &run->hosts, err)
                 : host_plan_read(o, run->hostname, &run->log, &run->hosts,
                                  &run->origin, err);

    if (rc == 0 && options_grows(o))
        discovery_copy(&run->found, &run->hosts);
    return rc ? rc : merge_local(run, &run->hosts, err);
}

static void find_local(struct run *run)
{
    run->host_is_local = hb_xcalloc((size_t)run->plan.host_cap, 1);
    run->local_hosts = 0;
    for (int i = 0; i < run->plan.host_count; i++) {
        run->host_is_local[i] =
            (unsigned char)is_local(run, run->plan.hosts[i].entry);
        run->local_hosts += run->host_is_local[i];
    }
}

/* Checks --wdir on this machine; agents check it on other hosts. */
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
    int rc;

    snprintf(run->hostname, sizeof(run->hostname), "localhost");
    gethostname(run->hostname, sizeof(run->hostname) - 1);
    rc = run->hosts.count ? 0 : read_hosts(run, err);
    if (rc > 0)
        run->exit_code = rc;
    if (rc == 0)
        rc = host_plan_make(run->options, &run->hosts, &run->origin, &run->plan,
                            err);
    if (rc)
        return rc;
    if (options_grows(run->options) && run->options->action == OPTIONS_RUN)
        growth_reserve(run->options, &run->plan);
    find_local(run);
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

/* ---- The job's description ---- */

/* Returns the timeline's path.  With --timeline-filename each rank writes its
 * own on its host and hvdrun's agents collect them; without, and with DYNAMIC
 * (NULL), ranks see to it themselves. */
static const char *find_timeline(const struct options *o)
{
    const char *path = hb_env_get(&o->knobs, "HVD_TIMELINE");

    return path && strcmp(path, "DYNAMIC") != 0 ? path : NULL;
}

/* Takes the token of --http out of the environment, which agents and other
 * helpers inherit. */
static void take_token(struct run *run)
{
    const char *token = hb_variable("HVD_HTTP_TOKEN");

    if (token)
        run->http_token = hb_xstrdup(token);
    unsetenv("HVD_HTTP_TOKEN");
}

static int fill_config(struct run *run, struct hb_error *err)
{
    const struct options *o = run->options;

    if (find_cwd(run, err) < 0)
        return err->status;
    if (!run->agent_path)
        run->agent_path = reach_agent_path(o, err);
    if (!run->agent_path)
        return err->status;
    run->http_plugin = o->http ? reach_plugin(SERVE_PLUGIN_FILE) : NULL;
    if (!run->http_token)
        take_token(run);
    if (run->plan.host_count > 1 && !launcher_table[o->launcher].names_differ)
        run->same_as =
            hb_xcalloc((size_t)run->plan.host_count, sizeof(*run->same_as));
    run->config = (struct job_config){
        .loop = &run->main.loop,
        .log = &run->log,
        .plan = &run->plan,
        .agent_path = run->agent_path,
        .host_is_local = run->host_is_local,
        .same_as = run->same_as,
        .progress = isatty(2),
        .heartbeat_ms =
            o->heartbeat_ms < INT_MAX ? (int)o->heartbeat_ms : INT_MAX,
        .network_interfaces = o->network_interfaces,
        .argv = o->command,
        .cwd = run->cwd,
        .spec = o->spec,
        .start_timeout_ms = o->start_timeout_ms,
        .timeout_ms = o->timeout_ms,
        .min_np = o->min_np ? o->min_np : run->plan.np,
        .reset_limit = o->reset_limit,
        .restart_failed = o->restart_failed,
        .most = options_grows(o) ? growth_most(o, run->plan.np) : 0,
        .spares = o->spares,
        .multiple = o->np_multiple,
        .whole_hosts = o->whole_hosts,
        .is_local = is_local,
        .known_name = known_name,
        .names_differ = launcher_table[o->launcher].names_differ,
        .cooldown_least_ms = o->cooldown_least_ms,
        .cooldown_most_ms = o->cooldown_most_ms,
        .stop_at_commit = o->stop_at_commit,
        .within = run->origin.name,
        .ends_s = run->origin.end_s,
        .preempt_file = o->preempt_file,
        .preempt_script = o->preempt_script,
        .elastic_timeout_ms = o->elastic_timeout_ms,
        .stdin_rank = o->stdin_rank,
        .tag = o->tag,
        .timestamp = o->timestamp,
        .color = color_wanted(o),
        .output_dir = o->output_filename,
        .timeline = find_timeline(o),
        .stats = hb_env_get(&o->knobs, "HVD_STATS") != NULL,
        .reports = &o->reports,
        .http = o->http,
        .http_token = run->http_token,
        .http_plugin = run->http_plugin,
        .status = status_is_shown(o),
    };
    if (getrandom(run->config.secret, sizeof(run->config.secret), 0) !=
        sizeof(run->config.secret))
        return hb_error_sys(err, errno, "random bytes for the job");
    return serve_token_make(run->config.job_id, err);
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
        .compat_dir = o->compat_dir,
        .compat_force = o->horovod == HOROVOD_FORCE,
    };

    if (worker_env_common(&config, env, err) < 0)
        return err ? err->status : -HVD_ENOMEM;
    if (o->np_multiple > 1)
        hb_must(hb_env_setf(env, "HVD_NP_MULTIPLE", "%d", o->np_multiple));
    else
        hb_must(hb_env_set(env, "HVD_NP_MULTIPLE", NULL));
    /* A report, or the status, has the ranks' statistics, unless the user wants
     * none. */
    if ((o->reports.count || o->http || status_is_shown(o)) &&
        !hb_env_get(env, "HVD_STATS") && !hb_env_get(env, "HOROVOD_STATS"))
        hb_must(hb_env_set(env, "HVD_STATS", "1"));
    return 0;
}

/* Says once that ranks get OMP_NUM_THREADS=1. */
static void note_threads(const struct run *run)
{
    for (int rank = 0; rank < run->plan.np; rank++)
        if (worker_env_limits_threads(&run->plan, rank, &run->config.env)) {
            hb_log(&run->log, HB_LOG_INFO,
                   "ranks that share a host get OMP_NUM_THREADS=1; for more "
                   "threads, use -x OMP_NUM_THREADS=N");
            return;
        }
}

/* Fills in the environments; running out of memory ends hvdrun. */
static void fill_env(struct run *run)
{
    struct job_config *config = &run->config;

    hb_must(common_env(run->options, 0, &config->env, NULL));
    if (run->config.remote)
        hb_must(common_env(run->options, 1, &config->remote_env, NULL));
    config->rank_env =
        hb_xcalloc((size_t)run->plan.size, sizeof(*config->rank_env));
    for (int rank = 0; rank < run->plan.size; rank++)
        if (run->plan.ranks[rank].is_bound)
            hb_must(worker_env_rank(&run->plan, rank, config->job_id,
                                    &config->env, &config->rank_env[rank],
                                    NULL));
    note_threads(run);
}

/* Frees the plan and what belongs to it, but not what the next plan uses. */
static void drop_plan(struct run *run)
{
    struct job_config *config = &run->config;

    job_free(run->job);
    for (int i = 0; config->rank_env && i < run->plan.size; i++)
        hb_strv_free(&config->rank_env[i]);
    hb_free(config->rank_env);
    hb_strv_free(&config->env);
    hb_strv_free(&config->remote_env);
    explicit_bzero(config->secret, sizeof(config->secret));
    hb_free(run->host_is_local);
    hb_free(run->same_as);
    hb_free(run->cwd);
    hb_free(run->http_plugin);
    plan_free(&run->plan);
}

static void run_fini(struct run *run)
{
    drop_plan(run);
    main_loop_fini(&run->main);
    hb_free(run->agent_path);
    hostlist_free(&run->hosts);
    hostlist_free(&run->found);
    hb_strv_free(&run->aliases);
    hb_free(run->origin.name);
    hb_free(run->http_token);
}

/* ---- Signals ---- */

/* Describes a signal's sender; NULL if it has no pid here: the kernel (e.g.
 * for a terminal), or a process of another namespace. */
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

/* Takes SIGTSTP's default action: stops this process, or does nothing if no
 * shell could continue it. */
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

static void on_signal(void *arg, const struct signalfd_siginfo *info)
{
    struct run *run = arg;
    char *sender = sender_of(info);

    job_signal(run->job, (int)info->ssi_signo, sender);
    hb_free(sender);
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

    run->log.sink = NULL;
    run->exit_code = exit_code;
    discoverer_close(run->discoverer);
    run->discoverer = NULL;
    main_loop_stop(&run->main);
}

/* Kills leftover processes that carry this job's mark.  Children of a shell
 * that became hvdrun by exec do not carry it and are spared. */
static void kill_leftovers(const struct run *run)
{
    char *mark;

    if (!tree_has_children())
        return;
    mark = hb_xasprintf("HVD_JOB_ID=%s", run->config.job_id);
    tree_kill_marked(mark);
    hb_free(mark);
}

static void on_hosts(void *arg, const struct hostlist *hosts, int slots)
{
    struct hostlist merged = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct run *run = arg;

    (void)slots;
    discovery_copy(&merged, hosts);
    if (growth_rename(&merged, known_name, run, &err) == 0 &&
        merge_local(run, &merged, &err) == 0)
        job_offer_hosts(run->job, &merged);
    else
        hb_log(&run->log, HB_LOG_WARNING, "%s", err.text);
    hostlist_free(&merged);
}

static void on_trouble(void *arg, const char *why)
{
    const struct run *run = arg;
    const struct options *o = run->options;

    hb_log(&run->log, HB_LOG_WARNING,
           "%s: %s; the job goes on with the hosts found before",
           o->discovery_script ? "--host-discovery-script" : "--watch", why);
}

/* Offers the job the hosts that it may use beyond the first. */
static void offer_hosts(struct run *run)
{
    const struct options *o = run->options;
    struct discoverer_config config;

    if (!options_grows(o))
        return;
    job_offer_hosts(run->job, &run->hosts);
    if (!o->discovery_script && !o->watch)
        return;
    growth_discoverer(o, &config);
    config.loop = &run->main.loop;
    config.log = &run->log;
    config.before = &run->found;
    config.on_hosts = on_hosts;
    config.on_trouble = on_trouble;
    config.arg = run;
    run->discoverer = discoverer_open(&config);
}

static int start(struct run *run, struct hb_error *err)
{
    /* A job that grows may reach other hosts later. */
    int remote =
        run->local_hosts < run->plan.host_count || options_grows(run->options);
    int rc = 0;

    if (remote)
        rc = main_loop_reach(&run->main, run->options, run->agent_path,
                             &run->log, err);
    if (rc < 0)
        return rc;
    run->config.remote = remote ? run->main.remote : NULL;
    if (!remote && run->main.remote)
        remote_release_keys(run->main.remote);
    run->config.on_stop = stop_here;
    fill_env(run);
    rc = job_start(&run->config, on_done, run, &run->job, err);
    if (rc < 0)
        return rc;
    run->log.sink = on_log;
    run->log.sink_arg = run;
    offer_hosts(run);
    return 0;
}

static int run_loop(struct run *run, struct hb_error *err)
{
    int rc;

    run->exit_code = JOB_EXIT_LAUNCHER;
    rc = main_loop_open(&run->main, signals, SIGNALS, on_signal, run, err);
    if (rc < 0)
        return rc;
    run->exit_code = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = start(run, err);
    if (rc < 0)
        main_loop_stop(&run->main);
    main_loop_run(&run->main);
    if (rc == 0)
        kill_leftovers(run);
    return rc;
}

/* Merges the hosts that are one by their agents' reports, from the last on, as
 * merging moves those behind it up. */
static int plan_again(struct run *run, struct hb_error *err)
{
    int rc = 0;

    for (int i = run->plan.host_count - 1; rc == 0 && i >= 0; i--) {
        const struct plan_host *hosts = run->plan.hosts;
        int first = run->same_as[i];

        if (first != i)
            rc = merge(run, &run->hosts, HB_LOG_WARNING,
                       (size_t)(hosts[first].entry - run->hosts.entries),
                       (size_t)(hosts[i].entry - run->hosts.entries), err);
    }
    drop_plan(run);
    *run = (struct run){
        .options = run->options,
        .log = run->log,
        .hosts = run->hosts,
        .found = run->found,
        .aliases = run->aliases,
        .origin = run->origin,
        .http_token = run->http_token,
        .agent_path = run->agent_path,
        .main = run->main,
    };
    return rc < 0 ? rc : run_plan(run, err);
}

/* Logs hvdrun's own failure, if any, frees all, returns the exit code. */
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

    /* Ignored: a write reports a closed pipe or a full file itself, per
     * stream. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    rc = run_plan(&run, &err);
    while (rc == 0) {
        rc = fill_config(&run, &err);
        if (rc == 0)
            rc = run_loop(&run, &err);
        if (rc < 0 || run.exit_code != JOB_EXIT_SAME_HOST)
            break;
        rc = plan_again(&run, &err);
    }
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
