/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From LAUNCH to running ranks: all of them or none.
 *
 * Everything that can be checked is checked before the first rank runs: the
 * directory, the program, the GPUs.  Then the wire-up opens, which may take a
 * moment.  A later failure (no more processes, no memory) kills the ranks that
 * already run.
 */
#include "lib/agent/agent_impl.h"

#include "lib/agent/machine/cpus.h"
#include "lib/agent/machine/gpu_list.h"
#include "lib/agent/port.h"
#include "lib/agent/rank/host_env.h"
#include "lib/agent/rank/program.h"
#include "lib/agent/rank/spawn.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_LAUNCHER = 125 };

struct launch {
    struct agent *agent;
    char *program; /* for ranks without a PATH of their own */
    struct gpu_list gpus;
    struct cpus_set *sets; /* by slot; NULL: no binding */
    int port;              /* reserved for MASTER_PORT; 0: none needed */
    int is_late;           /* the ranks run: one is started again */
    sigset_t reset;
    struct spawn_limit limits[CONTROL_LIMIT_COUNT];
    size_t limit_count;
};

static int fail(struct agent *a, int exit_code, const struct hb_error *err)
{
    a->failure.exit_code = exit_code;
    a->failure.text = hb_xstrdup(err->text);
    return err->status;
}

/* ---- Environment ---- */

static int same_name(const char *a, const char *b)
{
    for (; *a == *b && *a && *a != '='; a++, b++)
        ;
    return *a == *b && *a == '=';
}

static int listed(char *const *items, size_t count, const char *entry)
{
    for (size_t i = 0; i < count; i++)
        if (same_name(items[i], entry))
            return 1;
    return 0;
}

/* Sets a variable unless the user has. */
static void set_new(const struct control_launch *job, const char *name,
                    const char *value, struct hb_strv *own)
{
    if (!hb_env_get(&job->env, name))
        hb_strv_addf(own, "%s=%s", name, value);
}

/* Tells a real Horovod where its rendezvous is.  With an MPI it needs neither
 * the rendezvous nor Gloo. */
static void horovod_variables(const struct launch *l, struct hb_strv *own)
{
    const struct agent *a = l->agent;
    const struct control_launch *job = &a->job;

    if (!a->horovod || hb_env_get(&job->env, "HOROVOD_GLOO_RENDEZVOUS_ADDR"))
        return;
    hb_strv_add(own, "HOROVOD_GLOO_RENDEZVOUS_ADDR=127.0.0.1");
    hb_strv_addf(own, "HOROVOD_GLOO_RENDEZVOUS_PORT=%d",
                 horovod_rdv_port(a->horovod));
    if (a->wireup.kind && !a->wireup.without)
        return;
    set_new(job, "HOROVOD_CONTROLLER", "gloo", own);
    set_new(job, "HOROVOD_CPU_OPERATIONS", "gloo", own);
}

/* Adds the variables that only the agent knows. */
static void own_variables(const struct launch *l, int slot, struct hb_strv *own)
{
    const struct control_launch *job = &l->agent->job;
    char *visible, *timeline = agent_trace_variable(l->agent);

    if (timeline)
        hb_strv_add(own, timeline);
    hb_free(timeline);
    hb_strv_addf(own, "HVD_RENDEZVOUS=%s", l->agent->endpoint.name);
    if (job->spec.elastic)
        hb_strv_addf(own, "HVD_ELASTIC=%d", l->is_late ? 2 : 1);
    wireup_environment(&l->agent->wireup, slot, own);
    horovod_variables(l, own);
    if (l->port)
        hb_strv_addf(own, "MASTER_PORT=%d", l->port);
    if (l->gpus.count == 0)
        return;
    if (!job->spec.bind_gpu) {
        hb_strv_addf(own, "HVD_GPU=%d",
                     gpu_of(&l->gpus, slot, job->spec.gpus_per_rank, 0));
        return;
    }
    visible = gpu_visible(&l->gpus, slot, job->spec.gpus_per_rank);
    hb_strv_add(own, "HVD_GPU=0");
    hb_strv_addf(own, "CUDA_VISIBLE_DEVICES=%s", visible);
    hb_free(visible);
}

/* Returns the environment of a rank: `own` overrides the rank's variables,
 * which override the common ones.  The strings are borrowed. */
static char **merge_env(const struct control_launch *job, int slot,
                        const struct hb_strv *own)
{
    const struct hb_strv *rank = &job->ranks[slot].env;
    char **env =
        hb_xcalloc(job->env.count + rank->count + own->count + 1, sizeof(*env));
    size_t n = 0, fixed;

    for (size_t i = 0; i < own->count; i++)
        env[n++] = own->items[i];
    for (size_t i = 0; i < rank->count; i++)
        if (!listed(own->items, own->count, rank->items[i]))
            env[n++] = rank->items[i];
    fixed = n;
    for (size_t i = 0; i < job->env.count; i++)
        if (!listed(env, fixed, job->env.items[i]))
            env[n++] = job->env.items[i];
    return env;
}

/* ---- Preparation ---- */

static int check_job(const struct control_launch *job, struct hb_error *err)
{
    if (job->rank_count < 1 || job->argv.count < 1)
        return hb_error_set(err, HVD_EINVAL, "nothing to run");
    if (job->cwd[0] != '/')
        return hb_error_set(err, HVD_EINVAL,
                            "%s: the working directory must be absolute",
                            job->cwd);
    if (access(job->cwd, X_OK) < 0)
        return hb_error_sys(err, errno, "cannot enter directory %s", job->cwd);
    return 0;
}

/* Warns if this host lacks the folder for --horovod (worker_env.h). */
static void check_compat(struct agent *a)
{
    const char *dir = hb_env_get(&a->job.env, "HVD_COMPAT");
    char *name;

    if (!dir)
        return;
    name = hb_xasprintf("%s/horovod/__init__.py", dir);
    if (access(name, R_OK) < 0)
        hb_log(&a->log, HB_LOG_WARNING,
               "--horovod: %s is not on this host, so its ranks may not find "
               "the module horovod; install hvdrun's Python package there at "
               "the same place",
               dir);
    hb_free(name);
}

static int resolve(struct launch *l, const char *path, char **program,
                   struct hb_error *err)
{
    const struct control_launch *job = &l->agent->job;
    int exit_code = EXIT_LAUNCHER;
    int rc = program_resolve(job->argv.items[0], path, job->cwd, program,
                             &exit_code, err);

    return rc < 0 ? fail(l->agent, exit_code, err) : 0;
}

/* Checks that every rank finds its program: ranks may have a PATH of their
 * own. */
static int resolve_all(struct launch *l, struct hb_error *err)
{
    const struct control_launch *job = &l->agent->job;
    int rc = resolve(l, hb_env_get(&job->env, "PATH"), &l->program, err);

    for (int i = 0; i < job->rank_count && rc == 0; i++) {
        const char *path = hb_env_get(&job->ranks[i].env, "PATH");
        char *program = NULL;

        if (path)
            rc = resolve(l, path, &program, err);
        hb_free(program);
    }
    return rc;
}

/* Returns the last slot of a rank that is started at once, or 0. */
static int last_started(const struct control_launch *job)
{
    int last = 0;

    for (int i = 0; i < job->rank_count; i++)
        if (!job->ranks[i].is_idle)
            last = i;
    return last;
}

static int place_gpus(struct launch *l, struct hb_error *err)
{
    const struct control_launch *job = &l->agent->job;

    gpu_list_read("", hb_env_get(&job->env, "CUDA_VISIBLE_DEVICES"), &l->gpus);
    if (!job->spec.bind_gpu)
        return 0;
    return gpu_check(&l->gpus, last_started(job) + 1, job->spec.gpus_per_rank,
                     job->spec.share_gpus, err);
}

/* Tells the endpoint the ranks' cache domains; cpus NULL: no rank is bound. */
static int place_domains(struct launch *l, const struct cpus *cpus,
                         struct hb_error *err)
{
    const struct control_launch *job = &l->agent->job;
    const char *given = hb_env_get(&job->env, "HVD_DOMAINS");
    uint32_t *domains;

    if (!given && !cpus)
        return 0;
    domains = hb_xcalloc((size_t)job->rank_count, sizeof(*domains));
    endpoint_set_domains(&l->agent->endpoint, domains);
    if (!given)
        cpus_domains("/sys", cpus, l->sets, job->rank_count, domains);
    else if (cpus_domains_parse(given, job->rank_count, domains) < 0)
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_DOMAINS is %s; a number for each rank of a "
                            "host is expected, such as 0,0,1,1",
                            given);
    return 0;
}

static int place_cpus(struct launch *l, const struct cpus_set *allowed,
                      struct hb_error *err)
{
    const struct control_launch *job = &l->agent->job;
    struct cpus cpus;
    char *remark;
    int rc;

    if (job->spec.bind == CONTROL_BIND_NONE)
        return place_domains(l, NULL, err);
    l->sets = hb_xcalloc((size_t)job->rank_count, sizeof(*l->sets));
    cpus_read("/sys", allowed, &cpus);
    cpus_plan(&cpus, job->spec.bind, job->rank_count, l->sets);
    remark = cpus_remark(&cpus, job->spec.bind, job->rank_count);
    if (remark)
        hb_log(&l->agent->log, HB_LOG_WARNING, "%s", remark);
    hb_free(remark);
    rc = place_domains(l, &cpus, err);
    cpus_fini(&cpus);
    return rc;
}

static int place_port(struct launch *l, struct hb_error *err)
{
    const struct control_launch *job = &l->agent->job;

    if (job->ranks[0].rank != 0 || hb_env_get(&job->env, "MASTER_PORT") ||
        hb_env_get(&job->ranks[0].env, "MASTER_PORT"))
        return 0;
    return port_reserve(&l->agent->port_fd, &l->port, err);
}

/* Opens the rendezvous of a real Horovod.  Few programs use one, so the job
 * goes on without it. */
static void open_horovod(struct agent *a)
{
    struct hb_error err = HB_ERROR_INIT;
    const struct horovod_rdv_config config = {
        .loop = a->config.loop,
        .job = &a->job,
        .log = &a->log,
        .relay = &a->endpoint.relay,
    };

    if (horovod_rdv_open(&config, &a->horovod, &err) < 0)
        hb_log(&a->log, HB_LOG_WARNING,
               "programs that use a real Horovod cannot start here: %s",
               err.text);
}

static int open_parts(struct launch *l, struct hb_error *err)
{
    struct agent *a = l->agent;
    struct cpus_set allowed = {NULL, 0};
    int rc = cpus_allowed(&allowed, err);

    if (rc == 0)
        rc = pump_init(&a->pump, a->config.loop, a->job.rank_count,
                       &agent_pump_events, a, err);
    a->pump_open = rc == 0;
    if (a->pump_open && a->job.output_window > 0)
        a->pump.window = (uint32_t)a->job.output_window;
    if (rc == 0)
        rc = endpoint_init(&a->endpoint, a->config.loop, &a->job, allowed.count,
                           &a->log, err);
    a->endpoint_open = a->pump_open && rc == 0;
    if (a->endpoint_open) {
        endpoint_set_rendezvous(&a->endpoint, agent_ask_rendezvous, a);
        a->endpoint.on_stalled = agent_on_stalled;
        a->endpoint.on_late = agent_on_late;
        a->endpoint.on_no_answer = agent_on_no_answer;
        a->endpoint.stalled_arg = a;
        a->endpoint.on_ready = agent_on_ready;
        a->endpoint.ready_arg = a;
        a->endpoint.on_stats = agent_on_stats;
        a->endpoint.stats_arg = a;
        open_horovod(a);
    }
    if (rc == 0)
        rc = agent_trace_open(a, err);
    if (rc == 0)
        rc = place_port(l, err);
    if (rc == 0)
        rc = place_gpus(l, err);
    if (rc == 0)
        rc = place_cpus(l, &allowed, err);
    cpus_set_fini(&allowed);
    return rc < 0 ? fail(a, EXIT_LAUNCHER, err) : 0;
}

/* ---- Spawning ---- */

static int spawn_failed(struct launch *l, int slot, const char *program,
                        enum spawn_stage stage, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    int exit_code = EXIT_LAUNCHER, rank = l->agent->job.ranks[slot].rank;

    if (stage == SPAWN_STAGE_EXEC)
        program_exec_error(program, err->sys_errno, &exit_code, &why);
    else if (stage == SPAWN_STAGE_CLONE && err->sys_errno == EAGAIN)
        hb_error_set(&why, HVD_ESYSTEM,
                     "cannot start rank %d: the limit on processes is "
                     "reached (see ulimit -u, and pids.max of the cgroup)",
                     rank);
    else if (err->sys_errno == EMFILE)
        hb_error_set(&why, HVD_ESYSTEM,
                     "cannot start rank %d: the limit on open files is "
                     "reached (see ulimit -n)",
                     rank);
    else
        hb_error_set(&why, HVD_ESYSTEM, "cannot start rank %d: %s", rank,
                     err->text);
    return fail(l->agent, exit_code, &why);
}

static int spawn_one(struct launch *l, int slot, const char *program,
                     char **env, int fds[3])
{
    struct agent *a = l->agent;
    struct hb_error err = HB_ERROR_INIT;
    struct spawn_options o = {
        .path = program,
        .argv = a->job.argv.items,
        .envp = env,
        .cwd = a->job.cwd,
        .stdio = {fds[0], fds[1], fds[2]},
        .limits = l->limits,
        .limit_count = l->limit_count,
        .reset = &l->reset,
    };
    struct spawn_child child;
    enum spawn_stage stage;
    cpu_set_t *mask = NULL;
    int rc, pass_fd;

    if (wireup_descriptor(&a->wireup, slot, &pass_fd, &err) < 0)
        return fail(a, EXIT_LAUNCHER, &err);
    if (pass_fd >= 0)
        o.pass_fd = pass_fd;
    if (l->sets && l->sets[slot].count > 0)
        o.affinity = mask = cpus_mask(&l->sets[slot], &o.affinity_bytes);
    rc = spawn_process(&o, &child, &stage, &err);
    if (mask)
        CPU_FREE(mask);
    if (rc < 0)
        return spawn_failed(l, slot, program, stage, &err);
    a->ranks[slot].pid = child.pid;
    a->ranks[slot].pidfd = child.pidfd;
    wireup_rank_started(&a->wireup, slot);
    if (agent_watch_rank(a, slot, &err) < 0)
        return fail(a, EXIT_LAUNCHER, &err);
    return 0;
}

static int start_rank(struct launch *l, int slot)
{
    struct agent *a = l->agent;
    struct hb_strv own = HB_STRV_INIT;
    struct hb_error err = HB_ERROR_INIT;
    const char *path = hb_env_get(&a->job.ranks[slot].env, "PATH");
    char *program = NULL, **env = NULL;
    int fds[3], rc;

    rc = pump_open(&a->pump, slot, a->job.ranks[slot].stdin_open, fds, &err);
    if (rc < 0) {
        hb_error_context(&err, "rank %d", a->job.ranks[slot].rank);
        return fail(a, EXIT_LAUNCHER, &err);
    }
    own_variables(l, slot, &own);
    env = merge_env(&a->job, slot, &own);
    rc = path ? resolve(l, path, &program, &err) : 0;
    if (rc == 0)
        rc = spawn_one(l, slot, program ? program : l->program, env, fds);
    pump_close_child(&a->pump, fds);
    hb_free(program);
    hb_free(env);
    hb_strv_free(&own);
    return rc;
}

static void report_started(struct agent *a)
{
    struct control_started m = {.count = a->job.rank_count};

    m.pids = hb_xcalloc((size_t)m.count, sizeof(*m.pids));
    for (int i = 0; i < m.count; i++)
        m.pids[i] = a->ranks[i].pid;
    control_encode_started(&a->link.out, &m);
    hb_free(m.pids);
}

/* Copies what the agent itself needs of the environment. */
static void keep_paths(struct agent *a)
{
    const char *tmpdir = hb_env_get(&a->job.env, "TMPDIR");
    const char *path = hb_env_get(&a->job.env, "PATH");

    hb_free(a->tmpdir);
    hb_free(a->stall.path);
    a->tmpdir = tmpdir ? hb_xstrdup(tmpdir) : NULL;
    a->stall.path = path ? hb_xstrdup(path) : NULL;
}

/* Frees the environment, which the ranks have by now. */
static void forget_environment(struct agent *a)
{
    hb_strv_free(&a->job.env);
    for (int i = 0; i < a->job.rank_count; i++)
        hb_strv_free(&a->job.ranks[i].env);
}

/* Raises the hard limit, which root may do, to want->rlim_cur. */
static void raise_hard_limit(__rlimit_resource_t resource, struct rlimit *want)
{
    struct rlimit more;

    if (getrlimit(resource, &more) < 0)
        return;
    more.rlim_max = want->rlim_cur;
    if (setrlimit(resource, &more) == 0)
        want->rlim_max = want->rlim_cur;
}

/* Gives the ranks hvdrun's soft limit, as far as this host allows. */
static void set_limit(struct launch *l, enum control_limit limit)
{
    static const struct {
        __rlimit_resource_t resource;
        const char *name;
    } known[CONTROL_LIMIT_COUNT] = {
        [CONTROL_LIMIT_NOFILE] = {RLIMIT_NOFILE, "open files"},
        [CONTROL_LIMIT_MEMLOCK] = {RLIMIT_MEMLOCK, "locked memory"},
        [CONTROL_LIMIT_CORE] = {RLIMIT_CORE, "core files"},
    };
    const struct control_soft_limit *given = &l->agent->job.limits[limit];
    struct rlimit now, want;

    if (getrlimit(known[limit].resource, &now) < 0)
        return;
    want = limit == CONTROL_LIMIT_NOFILE ? l->agent->config.nofile : now;
    if (given->given)
        want.rlim_cur = given->value;
    if (want.rlim_cur > want.rlim_max)
        raise_hard_limit(known[limit].resource, &want);
    if (want.rlim_cur > want.rlim_max) {
        hb_log(&l->agent->log, HB_LOG_INFO,
               "the limit on %s is %llu here, less than hvdrun's",
               known[limit].name, (unsigned long long)want.rlim_max);
        want.rlim_cur = want.rlim_max;
    }
    if (want.rlim_cur == now.rlim_cur)
        return;
    l->limits[l->limit_count++] =
        (struct spawn_limit){(int)known[limit].resource, want};
}

static struct launch *launch_new(struct agent *a)
{
    struct launch *l = hb_xcalloc(1, sizeof(*l));

    l->agent = a;
    spawn_signals_to_reset(&l->reset);
    for (int i = 0; i < CONTROL_LIMIT_COUNT; i++)
        set_limit(l, (enum control_limit)i);
    a->ranks = hb_xcalloc((size_t)a->job.rank_count + 1, sizeof(*a->ranks));
    for (int i = 0; i < a->job.rank_count; i++)
        a->ranks[i].pidfd = -1;
    return l;
}

void agent_launch_drop(struct agent *a)
{
    struct launch *l = a->launch;

    if (!l)
        return;
    a->launch = NULL;
    keep_paths(a);
    forget_environment(a);
    for (int i = 0; l->sets && i < a->job.rank_count; i++)
        cpus_set_fini(&l->sets[i]);
    hb_free(l->sets);
    gpu_list_fini(&l->gpus);
    hb_free(l->program);
    hb_free(l);
}

static int open_wireup(struct launch *l, struct hb_error *err)
{
    struct agent *a = l->agent;
    const struct wireup_config config = {
        .loop = a->config.loop,
        .job = &a->job,
        .log = &a->log,
        .relay = &a->endpoint.relay,
        .events = &agent_wireup_events,
        .arg = a,
        .guarded_dir = a->config.wireup_dir,
    };
    int rc = wireup_open(&a->wireup, &config, l->program, err);

    return rc < 0 ? fail(a, EXIT_LAUNCHER, err) : rc;
}

int agent_launch_ranks(struct agent *a)
{
    int rc = 0;

    for (int i = 0; i < a->job.rank_count && rc == 0; i++)
        if (a->job.ranks[i].is_idle)
            endpoint_rank_idle(&a->endpoint, i);
        else
            rc = start_rank(a->launch, i);
    if (rc == 0) {
        report_started(a);
        link_flush(&a->link);
        cause_init(&a->cause, "");
        a->cause_open = 1;
        a->launch->is_late = 1;
        agent_watch_dying(a);
    }
    if (rc < 0 || !a->job.spec.restart)
        agent_launch_drop(a);
    else
        keep_paths(a);
    return rc;
}

int agent_launch_again(struct agent *a, int slot, struct control_failed *failed)
{
    const struct control_spec *spec = &a->job.spec;
    struct hb_error err = HB_ERROR_INIT;
    int rc = 0;

    if (spec->bind_gpu &&
        gpu_check(&a->launch->gpus, slot + 1, spec->gpus_per_rank,
                  spec->share_gpus, &err) < 0)
        rc = fail(a, EXIT_LAUNCHER, &err);
    if (rc == 0)
        rc = start_rank(a->launch, slot);
    *failed = a->failure;
    memset(&a->failure, 0, sizeof(a->failure));
    return rc;
}

int agent_launch(struct agent *a)
{
    struct hb_error err = HB_ERROR_INIT;
    struct launch *l = a->launch = launch_new(a);
    int rc;

    hb_must(host_env_complete(&a->job.env, environ));
    rc = check_job(&a->job, &err);
    if (rc < 0)
        rc = fail(a, EXIT_LAUNCHER, &err);
    if (rc == 0)
        rc = resolve_all(l, &err);
    if (rc == 0)
        check_compat(a);
    if (rc == 0)
        rc = open_parts(l, &err);
    if (rc == 0)
        rc = open_wireup(l, &err);
    if (rc < 0)
        agent_launch_drop(a);
    return rc == WIREUP_NOW ? agent_launch_ranks(a) : rc;
}

int agent_launch_failed(struct agent *a, const struct hb_error *err)
{
    agent_launch_drop(a);
    return fail(a, EXIT_LAUNCHER, err);
}
