/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names follow Horovod (HOROVOD_*), torchrun (RANK, WORLD_SIZE, ...), Open
 * MPI, MPICH and PMIx, whose variables from an outer launcher would make a
 * worker believe that it belongs to another job.
 */
#include "lib/job/worker_env.h"

#include "lib/base/buf.h"

#include <string.h>

/* Set by hvdrun or its agent; values from elsewhere are stale. */
static const char *const rank_names[] = {
    "RANK",       "SIZE",       "LOCAL_RANK", "LOCAL_SIZE",
    "CROSS_RANK", "CROSS_SIZE", "HOSTNAME",   "JOB_ID",
    "RENDEZVOUS", "GPU",        "ELASTIC",
};

static const char *const plain_names[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "NODE_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
};

/* Not passed on: they belong to another launcher's process or another
 * rendezvous.  A `*` at the end or at the start matches anything. */
static const char *const foreign[] = {
    "BASH_FUNC_*",
    "OLDPWD",
    "_HOROVOD_SECRET_KEY",
    "HVD_HTTP_TOKEN",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_GLOO_IFACE",
    "HOROVOD_ELASTIC",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_*",
    "OMPI_COMM_WORLD_*",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_MCA_ess*",
    "OMPI_MCA_orte_*",
    "OMPI_MCA_pmix",
    "OMPI_MCA_schizo*",
    "PMIX_*",
    "PMI_*",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_*",
    "HYDI_CONTROL_FD",
    "HYDRA_*",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
};

/* Passed on all the same: settings of PMIx. */
static const char *const own[] = {
    "PMIX_MCA_*",
};

/* What programs need even with --no-env. */
static const char *const basic[] = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL",
    "LANG", "LC_*", "TERM", "TMPDIR",
};

/* Meaningful on this host only. */
static const char *const host_bound[] = {
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "MAIL",
    "TMPDIR",
    "HOSTNAME",
    "SHLVL",
    "PWD",
    "_",
    "TTY",
    "WINDOWID",
    "DISPLAY",
    "XAUTHORITY",
    "WAYLAND_DISPLAY",
    "SSH_*",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_*",
    "XDG_SEAT",
    "XDG_VTNR",
    "DBUS_SESSION_BUS_ADDRESS",
    "GPG_AGENT_INFO",
    "TMUX*",
    "STY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "*CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static size_t name_len(const char *item)
{
    return strcspn(item, "=");
}

static int matches(const char *pattern, const char *name, size_t len)
{
    size_t n = strlen(pattern);

    if (pattern[0] == '*')
        return len >= n - 1 &&
               !memcmp(pattern + 1, name + len - (n - 1), n - 1);
    if (pattern[n - 1] == '*')
        return len >= n - 1 && !memcmp(pattern, name, n - 1);
    return len == n && !memcmp(pattern, name, n);
}

static int in_list(const char *const *list, size_t count, const char *name,
                   size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (matches(list[i], name, len))
            return 1;
    }
    return 0;
}

/* Returns the length of a leading HVD_ or HOROVOD_, or 0. */
static size_t prefix_len(const char *name, size_t len)
{
    if (len > 4 && !memcmp(name, "HVD_", 4))
        return 4;
    if (len > 8 && !memcmp(name, "HOROVOD_", 8))
        return 8;
    return 0;
}

int worker_env_is_computed(const char *name)
{
    size_t len = name_len(name);
    size_t skip = prefix_len(name, len);

    if (skip)
        return in_list(rank_names, COUNT(rank_names), name + skip, len - skip);
    return in_list(plain_names, COUNT(plain_names), name, len);
}

static int is_inherited(const struct worker_env_config *config,
                        const char *item)
{
    size_t len = name_len(item);

    if (!len || item[len] != '=')
        return 0;
    if (config->remote && in_list(host_bound, COUNT(host_bound), item, len))
        return 0;
    if (config->no_env)
        return in_list(basic, COUNT(basic), item, len);
    return !worker_env_is_computed(item) &&
           (!in_list(foreign, COUNT(foreign), item, len) ||
            in_list(own, COUNT(own), item, len));
}

/* Sets one NAME=VALUE item. */
static int set_item(struct hb_strv *env, const char *item)
{
    struct hb_buf name = HB_BUF_INIT;
    size_t len = name_len(item);
    int rc = 0;

    if (item[len] == '=') {
        rc = hb_buf_append(&name, item, len);
        if (!rc)
            rc = hb_env_set(env, hb_buf_data(&name), item + len + 1);
    }
    hb_buf_free(&name);
    return rc;
}

/* Removes the variable's other spelling: HVD_X and HOROVOD_X are one knob and
 * HVD_X is read first, so a new value for either must not lose to the other's
 * old one. */
static int drop_twin(struct hb_strv *env, const char *item)
{
    struct hb_buf twin = HB_BUF_INIT;
    size_t len = name_len(item), skip = prefix_len(item, len);
    int rc;

    if (!skip)
        return 0;
    rc = hb_buf_puts(&twin, skip == 4 ? "HOROVOD_" : "HVD_");
    if (!rc)
        rc = hb_buf_append(&twin, item + skip, len - skip);
    if (!rc)
        rc = hb_env_set(env, hb_buf_data(&twin), NULL);
    hb_buf_free(&twin);
    return rc;
}

static int add_inherited(const struct worker_env_config *config,
                         struct hb_strv *out)
{
    int rc = 0;

    for (char *const *e = config->inherited; !rc && e && *e; e++) {
        if (is_inherited(config, *e))
            rc = hb_strv_add(out, *e);
    }
    return rc;
}

static int add_set_env(const struct hb_strv *set, struct hb_strv *out)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < set->count; i++)
        rc = drop_twin(out, set->items[i]);
    for (size_t i = 0; !rc && i < set->count; i++) {
        if (!worker_env_is_computed(set->items[i]))
            rc = set_item(out, set->items[i]);
    }
    return rc;
}

/* Returns whether a list that is separated by colons has the item. */
static int path_has(const char *list, const char *item)
{
    size_t len = strlen(item);

    for (const char *p = list; p; p = strchr(p, ':')) {
        p += *p == ':';
        if (strcspn(p, ":") == len && !memcmp(p, item, len))
            return 1;
    }
    return 0;
}

/* Adds the folder to PYTHONPATH and names it to the agents, which look whether
 * their host has it, and to the modules in it. */
static int add_compat(const struct worker_env_config *config,
                      struct hb_strv *env)
{
    const char *dir = config->compat_dir;
    const char *old = hb_env_get(env, "PYTHONPATH");
    int first = config->compat_force;
    struct hb_buf path = HB_BUF_INIT;
    int rc;

    if (!old || !*old || (!first && path_has(old, dir)))
        rc = hb_buf_puts(&path, old && *old ? old : dir);
    else
        rc =
            hb_buf_printf(&path, "%s:%s", first ? dir : old, first ? old : dir);
    if (!rc)
        rc = hb_env_set(env, "PYTHONPATH", hb_buf_data(&path));
    if (!rc)
        rc = hb_env_set(env, "HVD_COMPAT", dir);
    if (!rc)
        rc = hb_env_set(env, "HVD_COMPAT_FORCE", first ? "1" : NULL);
    hb_buf_free(&path);
    return rc;
}

int worker_env_common(const struct worker_env_config *config,
                      struct hb_strv *out, struct hb_error *err)
{
    int rc = add_inherited(config, out);

    if (!rc)
        rc = hb_env_set(out, "PYTHONUNBUFFERED", "1");
    for (size_t i = 0; !rc && config->knobs && i < config->knobs->count; i++)
        rc = set_item(out, config->knobs->items[i]);
    if (!rc && config->set_env)
        rc = add_set_env(config->set_env, out);
    if (!rc && config->compat_dir)
        rc = add_compat(config, out);
    if (rc < 0)
        return hb_error_set(err, HVD_ENOMEM,
                            "out of memory for the workers' environment");
    return 0;
}

/* Sets the values of one rank, under all of their names. */
static int set_rank(struct hb_strv *out, const struct plan_rank *r,
                    const struct plan *plan)
{
    const int world_size = plan->np;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"HVD_RANK", r->rank},
        {"HVD_SIZE", world_size},
        {"HVD_LOCAL_RANK", r->local_rank},
        {"HVD_LOCAL_SIZE", r->local_size},
        {"HVD_CROSS_RANK", r->cross_rank},
        {"HVD_CROSS_SIZE", r->cross_size},
        {"HOROVOD_RANK", r->rank},
        {"HOROVOD_SIZE", world_size},
        {"HOROVOD_LOCAL_RANK", r->local_rank},
        {"HOROVOD_LOCAL_SIZE", r->local_size},
        {"HOROVOD_CROSS_RANK", r->cross_rank},
        {"HOROVOD_CROSS_SIZE", r->cross_size},
        {"RANK", r->rank},
        {"WORLD_SIZE", world_size},
        {"LOCAL_RANK", r->local_rank},
        {"LOCAL_WORLD_SIZE", r->local_size},
        {"NODE_RANK", r->host},
        {"GROUP_RANK", r->host},
        {"GROUP_WORLD_SIZE", plan->host_count},
        {"ROLE_RANK", r->rank},
        {"ROLE_WORLD_SIZE", world_size},
    };
    int rc = 0;

    for (size_t i = 0; !rc && i < COUNT(numbers); i++)
        rc = hb_strv_addf(out, "%s=%d", numbers[i].name, numbers[i].value);
    return rc;
}

int worker_env_limits_threads(const struct plan *plan, int rank,
                              const struct hb_strv *common)
{
    return plan->ranks[rank].local_size > 1 &&
           !hb_env_get(common, "OMP_NUM_THREADS");
}

int worker_env_rank(const struct plan *plan, int rank, const char *job_id,
                    const struct hb_strv *common, struct hb_strv *out,
                    struct hb_error *err)
{
    const struct plan_rank *r = &plan->ranks[rank];
    const char *host = plan->hosts[r->host].entry->name;
    int rc = set_rank(out, r, plan);

    if (!rc)
        rc = hb_strv_addf(out, "HVD_HOSTNAME=%s", host);
    if (!rc)
        rc = hb_strv_addf(out, "HOROVOD_HOSTNAME=%s", host);
    if (!rc)
        rc = hb_strv_addf(out, "HVD_JOB_ID=%s", job_id);
    if (!rc)
        rc = hb_strv_add(out, "ROLE_NAME=default");
    if (!rc && worker_env_limits_threads(plan, rank, common))
        rc = hb_strv_add(out, "OMP_NUM_THREADS=1");
    /* An inherited value was dropped, so one in `common` is the user's. */
    if (!rc && !hb_env_get(common, "MASTER_ADDR"))
        rc = hb_strv_addf(out, "MASTER_ADDR=%s",
                          plan->host_count == 1 ? "127.0.0.1"
                                                : plan->hosts[0].entry->name);
    if (!rc && plan->host_count == 1 &&
        !hb_env_get(common, "HOROVOD_GLOO_IFACE") &&
        !hb_env_get(common, "HVD_GLOO_IFACE"))
        rc = hb_strv_add(out, "HOROVOD_GLOO_IFACE=lo");
    if (rc < 0)
        return hb_error_set(err, HVD_ENOMEM,
                            "out of memory for rank %d's environment", rank);
    return 0;
}
