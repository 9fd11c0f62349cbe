/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats the plan; cells are printed when all widths are known.  CPUs and
 * GPUs come from the functions that the agent uses, so the table shows what a
 * run would do.
 */
#include "cmd/hvdrun/dryrun.h"

#include "lib/agent/rank/program.h"
#include "lib/base/alloc.h"
#include "lib/base/quote.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 5 };

struct table {
    struct hb_strv cells; /* COLUMNS a row */
    size_t widths[COLUMNS];
};

static int put_cell(struct table *t, const char *text)
{
    size_t column = t->cells.count % COLUMNS;

    if (strlen(text) > t->widths[column])
        t->widths[column] = strlen(text);
    return hb_strv_add(&t->cells, text);
}

static int put_number(struct table *t, int n)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", n);
    return put_cell(t, text);
}

static int put_cpus(struct table *t, const struct cpus_set *set)
{
    struct hb_buf text = HB_BUF_INIT;
    int rc = cpus_format(set, &text);

    if (!rc)
        rc = put_cell(t, hb_buf_data(&text));
    hb_buf_free(&text);
    return rc;
}

/* Checks whether a host's ranks can be bound to GPUs: 0 if so or if they need
 * not be, else negative with err set. */
static int gpus_lack(const struct dryrun *d, const struct plan_host *host,
                     struct hb_error *err)
{
    const struct options *o = d->options;

    return o->spec.bind_gpu
               ? gpu_check(d->gpus, host->count, o->spec.gpus_per_rank,
                           o->spec.share_gpus, err)
               : 0;
}

/* Puts the GPUs of a rank: numbers N of /dev/nvidia<N>, or names of MIG
 * instances.  Ranks that are not bound share GPUs as HVD_GPU says. */
static int put_gpus(struct table *t, const struct dryrun *d, int local_rank,
                    int none)
{
    struct hb_buf text = HB_BUF_INIT;
    int each = d->options->spec.gpus_per_rank, rc = 0;

    for (int i = 0; !rc && !none && i < each; i++) {
        const struct gpu *g =
            &d->gpus->items[gpu_of(d->gpus, local_rank, each, i)];

        if (i)
            rc = hb_buf_putc(&text, ',');
        if (!rc)
            rc = g->minor < 0 ? hb_buf_puts(&text, g->uuid)
                              : hb_buf_printf(&text, "%d", g->minor);
    }
    if (!rc)
        rc = put_cell(t, none ? "-" : hb_buf_data(&text));
    hb_buf_free(&text);
    return rc;
}

static int put_host(struct table *t, const struct dryrun *d,
                    const struct plan_host *host)
{
    struct cpus_set *sets = hb_xcalloc((size_t)host->count, sizeof(*sets));
    int rc = 0, no_gpu = !d->gpus->count || gpus_lack(d, host, NULL) < 0;

    cpus_plan(d->cpus, d->options->spec.bind, host->count, sets);
    for (int i = 0; !rc && i < host->count; i++) {
        rc = put_number(t, host->ranks[i]);
        if (!rc)
            rc = put_cell(t, host->entry->name);
        if (!rc)
            rc = put_number(t, i);
        if (!rc)
            rc = put_cpus(t, &sets[i]);
        if (!rc)
            rc = put_gpus(t, d, i, no_gpu);
    }
    for (int i = 0; i < host->count; i++)
        cpus_set_fini(&sets[i]);
    hb_free(sets);
    return rc;
}

static int print_table(const struct table *t, struct hb_buf *out)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < t->cells.count; i++) {
        size_t column = i % COLUMNS;
        int last = column == COLUMNS - 1;

        rc = last ? hb_buf_printf(out, "%s\n", t->cells.items[i])
                  : hb_buf_printf(out, "%-*s  ", (int)t->widths[column],
                                  t->cells.items[i]);
    }
    return rc;
}

static int format_table(const struct dryrun *d, struct hb_buf *out)
{
    static const char *const titles[COLUMNS] = {"rank", "host", "local rank",
                                                "cpus", "gpu"};
    struct table t = {HB_STRV_INIT, {0}};
    int rc = 0;

    for (int i = 0; !rc && i < COLUMNS; i++)
        rc = put_cell(&t, titles[i]);
    for (int i = 0; !rc && i < d->plan->host_count; i++)
        rc = put_host(&t, d, &d->plan->hosts[i]);
    if (!rc)
        rc = print_table(&t, out);
    hb_strv_free(&t.cells);
    return rc;
}

static int format_command(const struct dryrun *d, struct hb_buf *out)
{
    const struct hb_strv *command = &d->options->command;
    int rc = hb_buf_puts(out, "\ncommand:");

    for (size_t i = 0; !rc && i < command->count; i++) {
        rc = hb_buf_putc(out, ' ');
        if (!rc)
            rc = hb_quote_word(command->items[i], out);
    }
    return rc < 0 ? rc : hb_buf_printf(out, "\ndirectory: %s\n", d->cwd);
}

static int format_remarks(const struct dryrun *d, struct hb_buf *out)
{
    int rc = 0;

    for (int i = 0; !rc && i < d->plan->host_count; i++) {
        const struct plan_host *host = &d->plan->hosts[i];
        char *remark = cpus_remark(d->cpus, d->options->spec.bind, host->count);

        if (remark)
            rc = hb_buf_printf(out, "warning: host %s: %s\n", host->entry->name,
                               remark);
        hb_free(remark);
    }
    return rc;
}

static int format_failures(const struct dryrun *d, struct hb_buf *out)
{
    struct hb_error err = HB_ERROR_INIT;
    char *path = NULL;
    int code = 0, rc = 0;

    if (program_resolve(d->options->command.items[0],
                        hb_env_get(d->env, "PATH"), d->cwd, &path, &code,
                        &err) < 0)
        rc = hb_buf_printf(out, "would fail: %s (exit code %d)\n", err.text,
                           code);
    hb_free(path);
    for (int i = 0; !rc && i < d->plan->host_count; i++) {
        hb_error_clear(&err);
        if (gpus_lack(d, &d->plan->hosts[i], &err) < 0)
            rc = hb_buf_printf(out, "would fail: %s: %s\n",
                               d->plan->hosts[i].entry->name, err.text);
    }
    return rc;
}

int dryrun_format(const struct dryrun *d, struct hb_buf *out)
{
    int rc = format_table(d, out);

    if (!rc)
        rc = format_command(d, out);
    if (!rc)
        rc = format_remarks(d, out);
    return rc < 0 ? rc : format_failures(d, out);
}

int dryrun_here(const struct options *options, const struct plan *plan,
                const struct hb_strv *env, const char *cwd, struct hb_buf *out,
                struct hb_error *err)
{
    struct cpus_set allowed = {NULL, 0};
    struct cpus cpus = {NULL, 0, 0, 0};
    struct gpu_list gpus = {NULL, 0};
    const struct dryrun d = {options, plan, env, cwd, &cpus, &gpus};
    int rc = cpus_allowed(&allowed, err);

    if (rc < 0)
        return rc;
    cpus_read("/sys", &allowed, &cpus);
    gpu_list_read("", hb_env_get(env, "CUDA_VISIBLE_DEVICES"), &gpus);
    rc = dryrun_format(&d, out);
    if (rc < 0)
        hb_error_set(err, HVD_ENOMEM, "out of memory");
    gpu_list_fini(&gpus);
    cpus_fini(&cpus);
    cpus_set_fini(&allowed);
    return rc;
}
