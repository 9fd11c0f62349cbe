/* SPDX-License-Identifier: Apache-2.0 */
/* See host_plan.h. */
#include "cmd/hvdrun/host_plan.h"

#include "lib/base/alloc.h"

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
                   struct hostlist *hosts, struct hb_error *err)
{
    if (o->watch && !o->hostfile)
        return hb_error_set(err, HVD_EINVAL, "--watch: give a --hostfile");
    if (o->hosts)
        return hostlist_parse(o->hosts, hosts, err);
    if (o->hostfile)
        return hostlist_read_file(o->hostfile, hosts, err);
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
                   struct plan *plan, struct hb_error *err)
{
    const struct plan_options options = {.num_proc = o->num_proc,
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
