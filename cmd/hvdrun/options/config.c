/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the tree of a config file into settings. */
#include "cmd/hvdrun/options/config.h"

#include "cmd/hvdrun/options/config_tree.h"
#include "cmd/hvdrun/options/readfile.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <string.h>

/* horovodrun's sections.  A switch whose opposite has an unrelated name lists
 * both options. */
static const struct config_key {
    const char *section, *key, *option, *option_if_false;
} keys[] = {
    {"params", "fusion_threshold_mb", "--fusion-threshold-mb", NULL},
    {"params", "cycle_time_ms", "--cycle-time-ms", NULL},
    {"params", "cache_capacity", "--cache-capacity", NULL},
    {"params", "hierarchical_allreduce", "--hierarchical-allreduce", NULL},
    {"params", "hierarchical_allgather", "--hierarchical-allgather", NULL},
    {"params", "torus_allreduce", "--torus-allreduce", NULL},
    {"autotune", "enabled", "--autotune", NULL},
    {"autotune", "log_file", "--autotune-log-file", NULL},
    {"autotune", "warmup_samples", "--autotune-warmup-samples", NULL},
    {"autotune", "steps_per_sample", "--autotune-steps-per-sample", NULL},
    {"autotune", "bayes_opt_max_samples", "--autotune-bayes-opt-max-samples",
     NULL},
    {"autotune", "gaussian_process_noise", "--autotune-gaussian-process-noise",
     NULL},
    {"timeline", "filename", "--timeline-filename", NULL},
    {"timeline", "mark_cycles", "--timeline-mark-cycles", NULL},
    {"stall_check", "enabled", "--stall-check", NULL},
    {"stall_check", "warning_time_seconds",
     "--stall-check-warning-time-seconds", NULL},
    {"stall_check", "shutdown_time_seconds",
     "--stall-check-shutdown-time-seconds", NULL},
    {"library_options", "mpi_threads_disable", "--mpi-threads-disable", NULL},
    {"library_options", "num_nccl_streams", "--num-nccl-streams", NULL},
    {"library_options", "thread_affinity", "--thread-affinity", NULL},
    {"library_options", "gloo_timeout_seconds", "--gloo-timeout-seconds", NULL},
    {"logging", "level", "--log-level", NULL},
    {"logging", "with_timestamp", "--log-with-timestamp",
     "--log-without-timestamp"},
};

static const char *const sections[] = {
    "params",          "autotune", "timeline",   "stall_check",
    "library_options", "logging",  "controller",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct reader {
    const char *path;
    struct settings *out;
    struct hb_error *err;
};

static const struct option *option_named(const char *name)
{
    return option_find(name, strlen(name));
}

static int unknown(struct reader *r, const struct config_node *n,
                   const char *what, const char *const *names, size_t count)
{
    const char *near = hb_text_nearest(n->key, names, count);

    if (near)
        return hb_error_set(r->err, HVD_EINVAL,
                            "%s:%d: unknown %s '%s'; did you mean '%s'?",
                            r->path, n->line, what, n->key, near);
    return hb_error_set(r->err, HVD_EINVAL, "%s:%d: unknown %s '%s'", r->path,
                        n->line, what, n->key);
}

static int wrong_type(struct reader *r, int line, const char *label,
                      const char *expected, const struct config_node *n)
{
    return hb_error_set(r->err, HVD_EINVAL, "%s:%d: %s: expected %s, found %s",
                        r->path, line, label, expected,
                        config_kind_name(n->kind));
}

static void add(struct reader *r, const struct option *o, int line,
                const char *label, const char *value, size_t len)
{
    char *where = hb_xasprintf("%s:%d: %s", r->path, line, label);

    settings_add(r->out, o, where, value, len);
    hb_free(where);
}

static int is_scalar(const struct config_node *n)
{
    return n->kind == CONFIG_NUMBER || n->kind == CONFIG_STRING;
}

static const char *expected_by(const struct option *o)
{
    switch (o->arg) {
    case ARG_INT:
    case ARG_NUMBER:
        return "a number";
    case ARG_DURATION:
        return "a duration";
    case ARG_INT_LIST:
        return "numbers";
    default:
        break;
    }
    return o->flags & (OPTION_LIST | OPTION_JOIN) ? "a string or a list"
                                                  : "a string";
}

/* Returns the option that `false` stands for: --no-x for --x, --x for --no-x,
 * or NULL. */
static const struct option *negation(const struct option *o)
{
    const char *name = o->names[0];
    char *other = strncmp(name, "--no-", 5) ? hb_xasprintf("--no-%s", name + 2)
                                            : hb_xasprintf("--%s", name + 5);
    const struct option *found = option_named(other);

    hb_free(other);
    return found && found->arg == ARG_NONE ? found : NULL;
}

static int take_switch(struct reader *r, const struct config_node *n,
                       const char *label, const struct option *o,
                       const struct option *if_false)
{
    if (n->kind != CONFIG_BOOL)
        return wrong_type(r, n->line, label, "true or false", n);
    if (!strcmp(n->text, "false"))
        o = if_false ? if_false : negation(o);
    if (o)
        add(r, o, n->line, label, NULL, 0);
    return 0;
}

/* Takes `env:` as a map of names and values. */
static int take_variables(struct reader *r, const struct config_node *n,
                          const char *label, const struct option *o)
{
    for (size_t i = 0; i < n->count; i++) {
        const struct config_node *v = &n->items[i];
        char *item;

        if (!is_scalar(v) && v->kind != CONFIG_BOOL)
            return wrong_type(r, v->line, v->key, "a string", v);
        item = hb_xasprintf("%s=%s", v->key, v->text);
        add(r, o, v->line, label, item, strlen(item));
        hb_free(item);
    }
    return 0;
}

/* Takes a list: as several settings, or as one with commas. */
static int take_list(struct reader *r, const struct config_node *n,
                     const char *label, const struct option *o)
{
    struct hb_buf joined = HB_BUF_INIT;

    for (size_t i = 0; i < n->count; i++) {
        const struct config_node *item = &n->items[i];

        if (!is_scalar(item)) {
            hb_buf_free(&joined);
            return wrong_type(r, item->line, label, "a string", item);
        }
        if (o->flags & OPTION_LIST)
            add(r, o, item->line, label, item->text, item->text_len);
        else
            hb_buf_printf(&joined, "%s%s", i ? "," : "", item->text);
    }
    if (!(o->flags & OPTION_LIST))
        add(r, o, n->line, label, hb_buf_data(&joined), hb_buf_len(&joined));
    hb_buf_free(&joined);
    return 0;
}

static int take_option(struct reader *r, const struct config_node *n,
                       const char *label, const struct option *o,
                       const struct option *if_false)
{
    int wants_number = o->arg == ARG_INT || o->arg == ARG_NUMBER;

    if (n->kind == CONFIG_NULL)
        return 0;
    if (o->arg == ARG_NONE ||
        (o->arg == ARG_OPTIONAL && n->kind == CONFIG_BOOL))
        return take_switch(r, n, label, o, if_false);
    if (n->kind == CONFIG_LIST && (o->flags & (OPTION_LIST | OPTION_JOIN)))
        return take_list(r, n, label, o);
    if (n->kind == CONFIG_MAP && o->call == apply_env)
        return take_variables(r, n, label, o);
    if (!is_scalar(n) || (wants_number && n->kind != CONFIG_NUMBER))
        return wrong_type(r, n->line, label, expected_by(o), n);
    add(r, o, n->line, label, n->text, n->text_len);
    return 0;
}

static int take_key(struct reader *r, const char *section,
                    const struct config_node *n)
{
    const char *names[COUNT(keys)];
    size_t count = 0;

    for (size_t i = 0; i < COUNT(keys); i++) {
        const struct config_key *k = &keys[i];
        char *label;
        int rc;

        if (strcmp(k->section, section) != 0)
            continue;
        names[count++] = k->key;
        if (strcmp(k->key, n->key) != 0)
            continue;
        label = hb_xasprintf("%s.%s", section, n->key);
        rc = take_option(r, n, label, option_named(k->option),
                         k->option_if_false ? option_named(k->option_if_false)
                                            : NULL);
        hb_free(label);
        return rc;
    }
    return unknown(r, n, "key", names, count);
}

static int take_controller(struct reader *r, const struct config_node *n)
{
    if (n->kind == CONFIG_STRING && !strcmp(n->text, "gloo"))
        add(r, option_named("--gloo"), n->line, "controller: gloo", NULL, 0);
    else if (n->kind == CONFIG_STRING && !strcmp(n->text, "mpi"))
        add(r, option_named("--mpi"), n->line, "controller: mpi", NULL, 0);
    else if (n->kind != CONFIG_NULL)
        return hb_error_set(r->err, HVD_EINVAL,
                            "%s:%d: controller: must be gloo or mpi", r->path,
                            n->line);
    return 0;
}

static int is_section(const char *name)
{
    for (size_t i = 0; i < COUNT(sections); i++) {
        if (!strcmp(sections[i], name))
            return 1;
    }
    return 0;
}

/* Returns the option that a top-level key names, with - or _ between words. */
static const struct option *option_of_key(const char *key)
{
    char *name = hb_xasprintf("--%s", key);
    const struct option *o;

    for (char *p = name; *p; p++)
        *p = *p == '_' ? '-' : *p;
    o = option_named(name);
    hb_free(name);
    return o && !(o->flags & OPTION_NO_FILE) ? o : NULL;
}

static int unknown_top(struct reader *r, const struct config_node *n)
{
    size_t count = COUNT(sections);
    const char **names = hb_xcalloc(
        count + options_table_count * OPTION_NAMES_MAX, sizeof(*names));
    int rc;

    memcpy(names, sections, sizeof(sections));
    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *o = &options_table[i];

        for (int k = 0; k < OPTION_NAMES_MAX && o->names[k]; k++) {
            if (!strncmp(o->names[k], "--", 2) && !(o->flags & OPTION_NO_FILE))
                names[count++] = o->names[k] + 2;
        }
    }
    rc = unknown(r, n, "section or option", names, count);
    hb_free(names);
    return rc;
}

static int take_top(struct reader *r, const struct config_node *n)
{
    const struct option *o = option_of_key(n->key);
    int rc = 0;

    if (!strcmp(n->key, "controller"))
        return take_controller(r, n);
    /* `autotune` is a section and a switch. */
    if (is_section(n->key) && (n->kind == CONFIG_MAP || !o)) {
        if (n->kind != CONFIG_MAP && n->kind != CONFIG_NULL)
            return wrong_type(r, n->line, n->key, "a section", n);
        for (size_t i = 0; !rc && i < n->count; i++)
            rc = take_key(r, n->key, &n->items[i]);
        return rc;
    }
    return o ? take_option(r, n, n->key, o, NULL) : unknown_top(r, n);
}

static int is_json(const char *path, const char *text, size_t len)
{
    size_t path_len = strlen(path), skip = 0;

    if (path_len > 5 && !strcmp(path + path_len - 5, ".json"))
        return 1;
    while (skip < len && strchr(" \t\r\n", text[skip]))
        skip++;
    return skip < len && text[skip] == '{';
}

int config_parse(const char *path, const char *text, size_t len,
                 struct settings *out, struct hb_error *err)
{
    struct config_node root = {.kind = CONFIG_NULL};
    struct reader r = {path, out, err};
    int rc;

    if (is_json(path, text, len) && len)
        rc = config_read_json(path, text, len, &root, err);
    else
        rc = config_read_yaml(path, text, len, &root, err);
    if (!rc && root.kind == CONFIG_NULL)
        rc = hb_error_set(err, HVD_EINVAL, "%s: is empty", path);
    if (!rc && root.kind != CONFIG_MAP)
        rc = wrong_type(&r, root.line, "the file", "sections", &root);
    for (size_t i = 0; !rc && i < root.count; i++)
        rc = take_top(&r, &root.items[i]);
    config_node_fini(&root);
    return rc;
}

int config_read(const char *path, struct settings *out, struct hb_error *err)
{
    struct hb_buf text = HB_BUF_INIT;
    int rc = readfile(path, CONFIG_BYTES_MAX, &text, err);

    if (!rc)
        rc =
            config_parse(path, hb_buf_data(&text), hb_buf_len(&text), out, err);
    hb_buf_free(&text);
    return rc < 0 ? hb_error_context(err, "--config-file") : 0;
}
