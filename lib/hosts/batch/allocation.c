/* SPDX-License-Identifier: Apache-2.0 */
/* The table of batch systems; see allocation.h. */
#include "lib/hosts/batch/allocation.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/text.h"
#include "lib/hosts/batch/batch.h"
#include "lib/hosts/hostfold.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SIGNS_MAX = 2, HOSTS_SHOWN_BYTES = 160 };

struct batch_system {
    enum allocation_system id;
    const char *name;
    const char *signs[SIGNS_MAX]; /* a job has one of these variables */
    const char *job;              /* the variable with its number or name */
    int (*read)(struct batch *b);
};

/* In the order in which they are looked for: a Flux that was started in a job
 * of another batch system is the inner one. */
static const struct batch_system systems[] = {
    {ALLOCATION_FLUX, "Flux", {"FLUX_URI", NULL}, "FLUX_JOB_ID", batch_flux},
    {ALLOCATION_SLURM,
     "Slurm",
     {"SLURM_JOB_NODELIST", "SLURM_JOB_NODELIST_HET_GROUP_0"},
     "SLURM_JOB_ID",
     batch_slurm},
    {ALLOCATION_PBS, "PBS", {"PBS_NODEFILE", NULL}, "PBS_JOBID", batch_pbs},
    {ALLOCATION_LSF,
     "LSF",
     {"LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE"},
     "LSB_JOBID",
     batch_lsf},
    {ALLOCATION_SGE, "SGE", {"PE_HOSTFILE", NULL}, "JOB_ID", batch_sge},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *get(const struct hb_strv *env, const char *name)
{
    const char *value = hb_env_get(env, name);

    return value && *value ? value : NULL;
}

const char *batch_get(const struct batch *b, const char *name)
{
    return get(b->source->env, name);
}

int batch_copies(const struct batch *b, const char *name)
{
    const char *text = batch_get(b, name);
    int64_t copies = 0;

    if (text)
        hb_parse_i64(text, 1, INT32_MAX, &copies, NULL);
    return (int)copies;
}

static int shows(const struct hb_strv *env, const struct batch_system *s)
{
    for (int i = 0; i < SIGNS_MAX && s->signs[i]; i++)
        if (get(env, s->signs[i]))
            return 1;
    return 0;
}

/* Returns the system that `want` names, or that the environment shows; NULL:
 * none. */
static const struct batch_system *find(const struct hb_strv *env,
                                       enum allocation_system want)
{
    for (size_t i = 0; i < COUNT(systems); i++)
        if (want == systems[i].id ||
            (want == ALLOCATION_AUTO && shows(env, &systems[i])))
            return &systems[i];
    return NULL;
}

int allocation_is_present(const struct hb_strv *env)
{
    return find(env, ALLOCATION_AUTO) != NULL;
}

int allocation_read(const struct allocation_source *source,
                    enum allocation_system want, struct allocation *a,
                    struct hb_error *err)
{
    const struct batch_system *system = find(source->env, want);
    struct batch b = {source, a, err};
    const char *job;
    int rc;

    *a = (struct allocation){.system = NULL};
    if (!system)
        return 0;
    if (!shows(source->env, system))
        return hb_error_set(err, HVD_EINVAL,
                            "this is no job of %s: %s is not set", system->name,
                            system->signs[0]);
    job = get(source->env, system->job);
    if (job) {
        snprintf(a->job, sizeof(a->job), "%s", job);
        hb_text_trim_cut(a->job);
        hb_text_sanitize(a->job);
    }
    a->system = system->name;
    rc = system->read(&b);
    if (rc < 0)
        allocation_free(a);
    return rc;
}

void allocation_free(struct allocation *a)
{
    hostlist_free(&a->hosts);
    *a = (struct allocation){.system = NULL};
}

char *allocation_name(const struct allocation *a)
{
    return a->job[0] ? hb_xasprintf("%s job %s", a->system, a->job)
                     : hb_xasprintf("the %s job", a->system);
}

static void put_hosts(const struct hostlist *l, struct hb_buf *out)
{
    const char **names = hb_xcalloc(l->count + 1, sizeof(*names));
    int64_t slots = 0;
    char *folded;

    for (size_t i = 0; i < l->count; i++) {
        names[i] = l->entries[i].name;
        slots += l->entries[i].slots;
    }
    folded = hostfold(names, l->count);
    hb_must(hb_buf_printf(out, "%zu host%s (%.*s%s), %" PRId64 " slot%s",
                          l->count, l->count == 1 ? "" : "s", HOSTS_SHOWN_BYTES,
                          folded,
                          strlen(folded) > HOSTS_SHOWN_BYTES ? "..." : "",
                          slots, slots == 1 ? "" : "s"));
    hb_free(folded);
    hb_free(names);
}

static void put_end(int64_t end_s, int64_t now_s, struct hb_buf *out)
{
    int64_t left = end_s > now_s ? end_s - now_s : 0;
    time_t end = (time_t)end_s;
    struct tm local;
    char when[32];

    if (!localtime_r(&end, &local) ||
        !strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &local))
        return;
    hb_must(hb_buf_printf(out, "; it ends at %s, in ", when));
    if (left >= 3600)
        hb_must(hb_buf_printf(out, "%" PRId64 " h ", left / 3600));
    hb_must(left < 60 ? hb_buf_printf(out, "%" PRId64 " s", left)
                      : hb_buf_printf(out, "%" PRId64 " min", left / 60 % 60));
}

char *allocation_describe(const struct allocation *a, int64_t now_s)
{
    struct hb_buf out = HB_BUF_INIT;
    char *text = allocation_name(a);

    hb_must(hb_buf_printf(&out, "%s: ", text));
    hb_free(text);
    put_hosts(&a->hosts, &out);
    if (a->gpus > 0)
        hb_must(hb_buf_printf(&out, ", %d GPU%s on %s host", a->gpus,
                              a->gpus == 1 ? "" : "s",
                              a->gpus_everywhere ? "each" : "this"));
    if (a->end_s > 0)
        put_end(a->end_s, now_s, &out);
    text = hb_xstrdup(hb_buf_data(&out));
    hb_buf_free(&out);
    return text;
}
