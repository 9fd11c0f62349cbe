/* SPDX-License-Identifier: Apache-2.0 */
/* See host_plan.h. */
#include "cmd/hvdrun/host_plan.h"

#include "cmd/hvdrun/mpi/mpi_find.h"
#include "cmd/hvdrun/probe.h"
#include "cmd/hvdrun/reach.h"
#include "lib/base/alloc.h"

#include <time.h>
#include <unistd.h>

/* Runs a program of a batch system. */
static int run_program(void *arg, char *const *argv, struct hb_buf *out,
                       struct hb_error *err)
{
    char *path = mpi_program_path(argv[0]);
    int rc;

    (void)arg;
    if (!path)
        return hb_error_set(err, HVD_ENOENT,
                            "there is no program %s in PATH; give -H, or "
                            "--allocation none",
                            argv[0]);
    rc = probe_program(path, argv, out, err);
    hb_free(path);
    return rc < 0 ? hb_error_context(err, "%s", argv[0]) : 0;
}

/* Returns whether the allocation is this machine alone and the ranks are
 * counted otherwise: then it says nothing new. */
static int is_nothing_new(const struct options *o, const struct hostlist *l,
                          const char *hostname)
{
    return l->count == 1 && (o->num_proc || o->max_np) &&
           reach_is_local(&l->entries[0], hostname);
}

/* Reads the allocation, if there is any; as host_plan_read. */
static int read_allocation(const struct options *o, const char *hostname,
                           const struct hb_log *log, struct hostlist *hosts,
                           struct host_origin *from, struct hb_error *err)
{
    struct hb_strv env = {environ, 0, 0};
    const struct allocation_source source = {.env = &env, .run = run_program};
    struct allocation a = {.system = NULL};
    char *line;
    int rc;

    while (environ && environ[env.count])
        env.count++;
    rc = allocation_read(&source, o->allocation, &a, err);
    if (rc < 0)
        return o->allocation == ALLOCATION_AUTO
                   ? rc
                   : hb_error_context(err, "--allocation");
    if (!a.system)
        return 0;
    line = allocation_describe(&a, time(NULL));
    hb_log(log, HB_LOG_INFO, "%s", line);
    if (a.copies > 1)
        hb_log(log, HB_LOG_WARNING,
               "%s has started hvdrun %d times, and each starts ranks: start "
               "it once, in the script of the job",
               a.system, a.copies);
    hb_free(line);
    from->name = allocation_name(&a);
    from->end_s = a.end_s;
    from->is_used = !is_nothing_new(o, &a.hosts, hostname);
    if (from->is_used) {
        *hosts = a.hosts;
        a.hosts = (struct hostlist)HOSTLIST_INIT;
    }
    allocation_free(&a);
    return 0;
}

static int parse_here(const struct options *o, const char *name,
                      struct hostlist *hosts, struct hb_error *err)
{
    int slots = o->max_np > o->num_proc ? o->max_np : o->num_proc;
    char *text = slots > 0 ? hb_xasprintf("%s:%d", name, slots + o->spares)
                           : hb_xstrdup(name);
    int rc = hostlist_parse(text, hosts, err);

    hb_free(text);
    return rc;
}

int host_plan_read(const struct options *o, const char *hostname,
                   const struct hb_log *log, struct hostlist *hosts,
                   struct host_origin *from, struct hb_error *err)
{
    int rc;

    *from = (struct host_origin){0};
    if (o->watch && !o->hostfile)
        return hb_error_set(err, HVD_EINVAL, "--watch: give a --hostfile");
    if (o->hosts)
        return hostlist_parse(o->hosts, hosts, err);
    if (o->hostfile)
        return hostlist_read_file(o->hostfile, hosts, err);
    rc = read_allocation(o, hostname, log, hosts, from, err);
    if (rc < 0 || hosts->count)
        return rc;
    /* The machine's name may be no valid host name. */
    if (parse_here(o, hostname, hosts, NULL) == 0)
        return 0;
    return parse_here(o, "localhost", hosts, err);
}

/* Checks the limits of an elastic job against its number of ranks. */
static int check_limits(const struct options *o, const struct plan *plan,
                        struct hb_error *err)
{
    if (o->min_np > plan->size)
        return hb_error_set(err, HVD_EINVAL,
                            "--min-np %d: the job has only %d rank%s",
                            o->min_np, plan->size, plan->size > 1 ? "s" : "");
    if (o->max_np && o->max_np < plan->size)
        return hb_error_set(err, HVD_EINVAL,
                            "--max-np %d: the job has %d ranks already",
                            o->max_np, plan->size);
    if (o->np_multiple && plan->size % o->np_multiple != 0)
        return hb_error_set(
            err, HVD_EINVAL, "--np-multiple %d: the job has %d rank%s",
            o->np_multiple, plan->size, plan->size > 1 ? "s" : "");
    return 0;
}

int host_plan_make(const struct options *o, const struct hostlist *hosts,
                   const struct host_origin *from, struct plan *plan,
                   struct hb_error *err)
{
    const char *allocation = from->is_used ? from->name : NULL;
    const struct plan_options options = {.allocation = allocation,
                                         .num_proc = o->num_proc,
                                         .map = o->map,
                                         .npernode = o->npernode,
                                         .oversubscribe = o->oversubscribe};
    int rc = plan_make(hosts, &options, plan, err);

    if (rc == 0 && o->stdin_rank >= plan->size)
        rc = hb_error_set(err, HVD_EINVAL,
                          "--stdin %d: there are only ranks 0 to %d",
                          o->stdin_rank, plan->size - 1);
    return rc == 0 ? check_limits(o, plan, err) : rc;
}
