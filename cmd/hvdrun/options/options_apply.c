/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the settings' values and stores what they mean.  Every error says
 * where the setting stands, what is wrong, and what is allowed.
 */
#include "cmd/hvdrun/options/env_file.h"
#include "cmd/hvdrun/options/options_table.h"
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/job/job.h"
#include "lib/job/record/record_file.h"
#include "lib/job/serve/serve_address.h"
#include "lib/job/worker_env.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_of_memory(struct hb_error *err)
{
    return hb_error_set(err, HVD_ENOMEM, "out of memory");
}

static int bad(const struct setting *s, struct hb_error *err,
               const char *allowed)
{
    return hb_error_set(err, HVD_EINVAL, "%s '%s': %s", s->where, s->value,
                        allowed);
}

static void set_string(char **field, const char *value)
{
    hb_free(*field);
    *field = hb_xstrdup(value);
}

static void *field_of(struct applier *a, const struct option *o)
{
    return (char *)a->options + o->field;
}

/* ---- Checks by kind of argument ---- */

static int check_int(const struct setting *s, int64_t *out,
                     struct hb_error *err)
{
    const struct option *o = s->option;
    struct hb_error why = HB_ERROR_INIT;

    if (hb_parse_i64(s->value, o->min, o->max, out, &why) == 0)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "%s: %s%s", s->where, why.text,
                        o->limits ? o->limits : "");
}

static int check_int_list(const struct setting *s, struct hb_error *err)
{
    struct hb_strv parts = HB_STRV_INIT;
    int64_t n;
    int rc = hb_strv_split(&parts, s->value, ",");

    if (rc < 0)
        rc = out_of_memory(err);
    for (size_t i = 0; !rc && i < parts.count; i++) {
        rc = hb_parse_i64(parts.items[i], s->option->min, s->option->max, &n,
                          err);
        if (rc < 0)
            hb_error_context(err, "%s '%s'", s->where, s->value);
    }
    hb_strv_free(&parts);
    return rc;
}

static int check_number(const struct setting *s, struct hb_error *err)
{
    double n;
    int rc = hb_parse_double(s->value, (double)s->option->min,
                             (double)s->option->max, &n, err);

    return rc < 0 ? hb_error_context(err, "%s", s->where) : 0;
}

static int check_duration(const struct setting *s, int64_t *out,
                          struct hb_error *err)
{
    int days = (int)(s->option->max / 86400000);
    int64_t ms = 0;
    char most[64];
    int rc = hb_parse_duration_ms(s->value, &ms, err);

    if (rc < 0)
        return hb_error_context(err, "%s", s->where);
    if (ms < s->option->min)
        return bad(s, err,
                   s->option->min ? "must be more than 0"
                                  : "must not be negative");
    if (ms > s->option->max) {
        snprintf(most, sizeof(most), "must be at most %lld seconds (%d day%s)",
                 (long long)s->option->max / 1000, days, days == 1 ? "" : "s");
        return bad(s, err, most);
    }
    *out = ms;
    return 0;
}

/* Sets *out to the index of the value among the blank-separated choices. */
static int check_choice(const struct setting *s, int *out, struct hb_error *err)
{
    size_t len = strlen(s->value);
    const char *p = s->option->choices;

    for (int i = 0; *p; i++) {
        size_t n = strcspn(p, " ");

        if (n == len && !strncasecmp(p, s->value, n)) {
            *out = i;
            return 0;
        }
        p += n + (p[n] == ' ');
    }
    return hb_error_set(err, HVD_EINVAL, "%s '%s': must be one of %s", s->where,
                        s->value, s->option->choices);
}

/* ---- Targets ---- */

static int set_knob(struct options *o, const char *name, const char *value,
                    struct hb_error *err)
{
    static const char *const prefixes[] = {"HVD_", "HOROVOD_"};
    char full[64];

    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof(full), "%s%s", prefixes[i], name);
        if (hb_env_set(&o->knobs, full, value) < 0)
            return out_of_memory(err);
    }
    return 0;
}

static int apply_knob(struct applier *a, const struct setting *s,
                      struct hb_error *err)
{
    const struct option *o = s->option;
    const char *value = o->arg == ARG_NONE ? o->value : s->value;
    char number[32];
    int64_t n = 0;
    int rc = 0;

    if (o->arg == ARG_INT) {
        rc = check_int(s, &n, err);
        n *= o->scale ? o->scale : 1;
        snprintf(number, sizeof(number), "%lld", (long long)n);
        value = number;
    } else if (o->arg == ARG_NUMBER) {
        rc = check_number(s, err);
    } else if (o->arg == ARG_INT_LIST) {
        rc = check_int_list(s, err);
    }
    if (rc < 0)
        return rc;
    if (o->target == TO_ENV)
        rc = hb_env_set(&a->options->knobs, o->env, value);
    else if (option_idle_why(o))
        rc = hb_strv_addf(&a->options->notes, "%s: no effect: %s", s->where,
                          option_idle_why(o));
    if (rc < 0)
        return out_of_memory(err);
    return o->target == TO_KNOB ? set_knob(a->options, o->env, value, err) : 0;
}

/* Applies a time limit; if libhvd reads it, too, also sets its variable, in
 * whole seconds if possible. */
static int apply_ms(struct applier *a, const struct setting *s,
                    struct hb_error *err)
{
    int64_t *ms = field_of(a, s->option);
    char value[32];

    if (check_duration(s, ms, err) < 0)
        return -HVD_EINVAL;
    if (!s->option->env)
        return 0;
    if (*ms % 1000 == 0)
        snprintf(value, sizeof(value), "%lld", (long long)*ms / 1000);
    else
        snprintf(value, sizeof(value), "%lldms", (long long)*ms);
    return set_knob(a->options, s->option->env, value, err);
}

static int apply_int(struct applier *a, const struct setting *s,
                     struct hb_error *err)
{
    int64_t n = s->option->number;

    if (s->option->arg != ARG_NONE && check_int(s, &n, err) < 0)
        return -HVD_EINVAL;
    *(int *)field_of(a, s->option) = (int)n;
    return 0;
}

static int apply_nothing(struct applier *a, const struct setting *s,
                         struct hb_error *err)
{
    int64_t n;

    if (s->option->arg == ARG_INT && check_int(s, &n, err) < 0)
        return -HVD_EINVAL;
    if (hb_strv_addf(&a->options->notes, "%s: %s", s->where, s->option->help) <
        0)
        return out_of_memory(err);
    return 0;
}

static int apply_one(struct applier *a, const struct setting *s,
                     struct hb_error *err)
{
    const struct option *o = s->option;

    if (s->value && !*s->value && o->target != TO_REFUSED)
        return hb_error_set(err, HVD_EINVAL,
                            "%s: the value is empty; it takes %s", s->where,
                            o->metavar);
    switch (o->target) {
    case TO_INT:
        return apply_int(a, s, err);
    case TO_MS:
        return apply_ms(a, s, err);
    case TO_STRING:
        set_string(field_of(a, o), s->value);
        return 0;
    case TO_KNOB:
    case TO_ENV:
        return apply_knob(a, s, err);
    case TO_CALL:
        return o->call(a, s, err);
    case TO_NOTHING:
        return apply_nothing(a, s, err);
    case TO_REFUSED:
        break;
    }
    return hb_error_set(err, HVD_EINVAL, "%s is not supported by this version",
                        s->where);
}

int settings_apply(struct applier *a, const struct settings *s,
                   struct hb_error *err)
{
    for (size_t i = 0; i < s->count; i++) {
        int rc = apply_one(a, &s->items[i], err);

        if (rc < 0)
            return rc;
    }
    /* --verbose asks for hvdrun's own steps. */
    if (a->options->verbose && !a->log_level_given)
        a->options->log_level = HB_LOG_INFO;
    return 0;
}

/* ---- Setters named in the table ---- */

/* Sets the hosts.  -H and --hostfile exclude each other, but flags replace the
 * file's. */
int apply_hosts(struct applier *a, const struct setting *s,
                struct hb_error *err)
{
    struct options *o = a->options;
    int is_list = s->option->field == offsetof(struct options, hosts);
    char **mine = is_list ? &o->hosts : &o->hostfile;
    char **other = is_list ? &o->hostfile : &o->hosts;
    int *from = is_list ? &a->hosts_from : &a->hostfile_from;
    int other_from = is_list ? a->hostfile_from : a->hosts_from;
    int now = a->from_flags ? 2 : 1;

    if (other_from == now)
        return hb_error_set(err, HVD_EINVAL,
                            "%s: -H and --hostfile exclude each other",
                            s->where);
    hb_free(*other);
    *other = NULL;
    *from = now;
    set_string(mine, s->value);
    return 0;
}

int apply_allocation(struct applier *a, const struct setting *s,
                     struct hb_error *err)
{
    int i = 0;
    int rc = check_choice(s, &i, err);

    if (!rc)
        a->options->allocation = (enum allocation_system)i;
    return rc;
}

int apply_completion(struct applier *a, const struct setting *s,
                     struct hb_error *err)
{
    int i = 0;
    int rc = check_choice(s, &i, err);

    if (!rc) {
        a->options->action = OPTIONS_COMPLETION;
        a->options->shell = (enum options_shell)i;
    }
    return rc;
}

static const char *inherited(const char *name)
{
    size_t len = strlen(name);

    for (char **e = environ; e && *e; e++) {
        if (!strncmp(*e, name, len) && (*e)[len] == '=')
            return *e + len + 1;
    }
    return NULL;
}

static int warn_computed(struct options *o, const char *where, const char *item,
                         struct hb_error *err)
{
    int rc = 0;

    if (worker_env_is_computed(item))
        rc = hb_strv_addf(&o->warnings, "%s: hvdrun sets %.*s itself; ignored",
                          where, (int)strcspn(item, "="), item);
    return rc < 0 ? out_of_memory(err) : 0;
}

int apply_env(struct applier *a, const struct setting *s, struct hb_error *err)
{
    struct options *o = a->options;
    size_t name_len = strcspn(s->value, "=");
    const char *value;
    int rc;

    if (!env_name_ok(s->value, name_len))
        return bad(s, err, "must be NAME or NAME=VALUE");
    rc = warn_computed(o, s->where, s->value, err);
    if (rc < 0)
        return rc;
    if (s->value[name_len] == '=') {
        rc = hb_strv_add(&o->set_env, s->value);
    } else {
        value = inherited(s->value);
        if (value)
            rc = hb_strv_addf(&o->set_env, "%s=%s", s->value, value);
        else
            rc = hb_strv_addf(&o->warnings,
                              "%s %s: not set here, so not passed on", s->where,
                              s->value);
    }
    return rc < 0 ? out_of_memory(err) : 0;
}

int apply_env_file(struct applier *a, const struct setting *s,
                   struct hb_error *err)
{
    struct options *o = a->options;
    size_t first = o->set_env.count;
    int rc = env_file_read(s->value, &o->set_env, err);

    if (rc < 0)
        return hb_error_context(err, "%s", s->where);
    for (size_t i = first; !rc && i < o->set_env.count; i++)
        rc = warn_computed(o, s->value, o->set_env.items[i], err);
    return rc;
}

int apply_report(struct applier *a, const struct setting *s,
                 struct hb_error *err)
{
    if (record_file_kind(s->value, err) < 0)
        return hb_error_context(err, "%s '%s'", s->where, s->value);
    return hb_strv_add(&a->options->reports, s->value) < 0 ? out_of_memory(err)
                                                           : 0;
}

int apply_http(struct applier *a, const struct setting *s, struct hb_error *err)
{
    struct serve_address address;

    if (serve_address_parse(s->value, &address, err) < 0)
        return hb_error_context(err, "%s '%s'", s->where, s->value);
    set_string(&a->options->http, s->value);
    return 0;
}

int apply_wdir(struct applier *a, const struct setting *s, struct hb_error *err)
{
    char *cwd, *path;

    if (s->value[0] == '/') {
        set_string(&a->options->wdir, s->value);
        return 0;
    }
    cwd = getcwd(NULL, 0);
    if (!cwd)
        return hb_error_sys(err, errno, "current directory");
    path = hb_xasprintf("%s/%s", cwd, s->value);
    set_string(&a->options->wdir, path);
    hb_free(path);
    free(cwd);
    return 0;
}

int apply_stdin(struct applier *a, const struct setting *s,
                struct hb_error *err)
{
    int64_t rank;

    if (!strcmp(s->value, "none")) {
        rank = JOB_STDIN_NONE;
    } else if (!strcmp(s->value, "all")) {
        rank = JOB_STDIN_ALL;
    } else if (hb_parse_i64(s->value, 0, PLAN_RANKS_MAX - 1, &rank, NULL)) {
        return bad(s, err, "must be a rank, all or none");
    }
    a->options->stdin_rank = (int)rank;
    return 0;
}

int apply_bind(struct applier *a, const struct setting *s, struct hb_error *err)
{
    static const enum control_bind binds[] = {
        CONTROL_BIND_NONE, CONTROL_BIND_CORE, CONTROL_BIND_NUMA};
    int i = 0;
    int rc = check_choice(s, &i, err);

    if (!rc)
        a->options->spec.bind = binds[i];
    return rc;
}

int apply_wireup(struct applier *a, const struct setting *s,
                 struct hb_error *err)
{
    static const enum control_wireup wireups[] = {
        CONTROL_WIREUP_AUTO, CONTROL_WIREUP_PMIX, CONTROL_WIREUP_PMI1,
        CONTROL_WIREUP_NONE};
    int i = 0;
    int rc = check_choice(s, &i, err);

    if (!rc)
        a->options->spec.wireup = wireups[i];
    return rc;
}

/* Passes the name to workers in capitals, as horovodrun does. */
int apply_log_level(struct applier *a, const struct setting *s,
                    struct hb_error *err)
{
    enum hb_log_level level = HB_LOG_WARNING;
    char name[16];
    size_t n;
    int i = 0;
    int rc = check_choice(s, &i, err);

    if (rc < 0)
        return rc;
    hb_log_level_parse(s->value, &level);
    a->options->log_level = level;
    a->log_level_given = 1;
    for (n = 0; n < sizeof(name) - 1 && s->value[n]; n++)
        name[n] = (char)toupper((unsigned char)s->value[n]);
    name[n] = '\0';
    return set_knob(a->options, "LOG_LEVEL", name, err);
}

int apply_log_time(struct applier *a, const struct setting *s,
                   struct hb_error *err)
{
    a->options->log_timestamp = !s->option->number;
    return set_knob(a->options, "LOG_HIDE_TIME", s->option->number ? "1" : "0",
                    err);
}

/* Sets the action.  After a tool's name, --dry-run is the tool's own option. */
int apply_action(struct applier *a, const struct setting *s,
                 struct hb_error *err)
{
    (void)err;
    if (a->options->action >= OPTIONS_PS)
        a->options->dry_run = 1;
    else
        a->options->action = (enum options_action)s->option->number;
    return 0;
}

/* Sets a path.  Replaces a leading ~ by the home directory, because shells do
 * not do so in --option=~/file. */
int apply_path(struct applier *a, const struct setting *s, struct hb_error *err)
{
    char **field = field_of(a, s->option);
    const char *home = inherited("HOME");

    if (s->value[0] != '~') {
        set_string(field, s->value);
        return 0;
    }
    if (s->value[1] != '/' && s->value[1] != '\0')
        return bad(s, err, "only ~/ is understood, not ~user");
    if (!home || !*home)
        return bad(s, err, "HOME is not set");
    hb_free(*field);
    *field = hb_xasprintf("%s%s", home, s->value + 1);
    return 0;
}

int apply_launcher(struct applier *a, const struct setting *s,
                   struct hb_error *err)
{
    if (launcher_find(s->value, &a->options->launcher, err) == 0)
        return 0;
    return hb_error_context(err, "%s '%s'", s->where, s->value);
}

int apply_map(struct applier *a, const struct setting *s, struct hb_error *err)
{
    int i = 0;
    int rc = check_choice(s, &i, err);

    if (!rc)
        a->options->map = i == 0 ? PLAN_MAP_SLOT : PLAN_MAP_NODE;
    return rc;
}

int apply_unit(struct applier *a, const struct setting *s, struct hb_error *err)
{
    return check_choice(s, &a->options->whole_hosts, err);
}

/* Adds an interface list to those given before.  Lists from the command line
 * replace all lists from the configuration file. */
int apply_interfaces(struct applier *a, const struct setting *s,
                     struct hb_error *err)
{
    char **list = &a->options->network_interfaces;
    char *joined;

    (void)err;
    if (!*list || a->interfaces_from_file == a->from_flags) {
        set_string(list, s->value);
    } else {
        joined = hb_xasprintf("%s,%s", *list, s->value);
        hb_free(*list);
        *list = joined;
    }
    a->interfaces_from_file = !a->from_flags;
    return 0;
}

/* Sets the controller; a flag replaces the file's choice. */
int apply_controller(struct applier *a, const struct setting *s,
                     struct hb_error *err)
{
    if (a->controller && a->controller != s->option &&
        a->controller_from_flags == a->from_flags)
        return hb_error_set(err, HVD_EINVAL,
                            "%s: --gloo and --mpi exclude each other",
                            s->where);
    a->controller = s->option;
    a->controller_from_flags = a->from_flags;
    a->options->mpi = s->option->number;
    if (!a->options->mpi)
        return apply_nothing(a, s, err);
    return 0;
}

/* Lets Python ranks import horovod; `false` in the config file does not. */
int apply_horovod(struct applier *a, const struct setting *s,
                  struct hb_error *err)
{
    static const enum options_horovod words[] = {HOROVOD_AUTO, HOROVOD_FORCE};
    int i = 0;
    int rc = s->value ? check_choice(s, &i, err) : 0;

    if (!rc)
        a->options->horovod = words[i];
    return rc;
}

/* Sets for how long a host is left alone after failures: MIN,MAX. */
int apply_cooldown(struct applier *a, const struct setting *s,
                   struct hb_error *err)
{
    static const char *const allowed =
        "must be two numbers of seconds from 1 to 3600, MIN and MAX";
    struct hb_strv words = HB_STRV_INIT;
    int64_t least, most;
    int rc = hb_strv_split(&words, s->value, ",");

    if (rc < 0)
        return out_of_memory(err);
    if (words.count != 2 ||
        hb_parse_i64(words.items[0], 1, 3600, &least, NULL) < 0 ||
        hb_parse_i64(words.items[1], 1, 3600, &most, NULL) < 0 || least > most)
        rc = bad(s, err, allowed);
    hb_strv_free(&words);
    if (rc < 0)
        return rc;
    a->options->cooldown_least_ms = least * 1000;
    a->options->cooldown_most_ms = most * 1000;
    return 0;
}
