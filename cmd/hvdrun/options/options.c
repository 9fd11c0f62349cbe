/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recognises options in argv like argparse: `--opt value`, `--opt=value`,
 * unambiguous prefixes of long names, `-Hvalue` for one-letter names.  The
 * command begins at the first word that is no option.  What options mean is in
 * options_apply.c.
 */
#include "cmd/hvdrun/options/options.h"

#include "cmd/hvdrun/options/config.h"
#include "cmd/hvdrun/options/options_foreign.h"
#include "cmd/hvdrun/options/options_table.h"
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/text.h"
#include "lib/job/elastic/strikes.h"
#include "lib/job/job.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

enum {
    START_TIMEOUT_MS = 30000,
    HEARTBEAT_MS = 15000,
    ELASTIC_TIMEOUT_MS = 600000,
    DISCOVERY_MS = 1000,
    MAX_STARTUPS = 16,
};

void options_init(struct options *o)
{
    *o = (struct options){
        .action = OPTIONS_RUN,
        .set_env = HB_STRV_INIT,
        .knobs = HB_STRV_INIT,
        .command = HB_STRV_INIT,
        .warnings = HB_STRV_INIT,
        .notes = HB_STRV_INIT,
        .tag = 1,
        .stdin_rank = JOB_STDIN_NONE,
        .start_timeout_ms = START_TIMEOUT_MS,
        .heartbeat_ms = HEARTBEAT_MS,
        .reset_limit = -1,
        .elastic_timeout_ms = ELASTIC_TIMEOUT_MS,
        .discovery_ms = DISCOVERY_MS,
        .cooldown_least_ms = STRIKES_LEAST_MS,
        .cooldown_most_ms = STRIKES_MOST_MS,
        .max_startups = MAX_STARTUPS,
        .spec = CONTROL_SPEC_INIT,
        .log_level = HB_LOG_WARNING,
    };
}

void options_fini(struct options *o)
{
    char *strings[] = {o->hosts,
                       o->hostfile,
                       o->discovery_script,
                       o->wdir,
                       o->output_filename,
                       o->http,
                       o->preempt_file,
                       o->preempt_script,
                       o->job,
                       o->agent_path,
                       o->config_file,
                       o->rsh,
                       o->ssh_user,
                       o->ssh_identity,
                       o->ssh_config,
                       o->ssh_known_hosts,
                       o->network_interfaces,
                       o->mpi_args,
                       o->binding_args,
                       o->compat_dir};
    struct hb_strv *vectors[] = {&o->set_env, &o->knobs,    &o->command,
                                 &o->reports, &o->warnings, &o->notes};

    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
        hb_free(strings[i]);
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        hb_strv_free(vectors[i]);
    memset(o, 0, sizeof(*o));
}

void settings_free(struct settings *s)
{
    for (size_t i = 0; i < s->count; i++) {
        hb_free(s->items[i].where);
        hb_free(s->items[i].value);
    }
    hb_free(s->items);
    *s = (struct settings){NULL, 0, 0};
}

void settings_add(struct settings *s, const struct option *option,
                  const char *where, const char *value, size_t value_len)
{
    struct setting *item;

    if (s->count == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 16;
        s->items = hb_xrealloc_array(s->items, s->cap, sizeof(*s->items));
    }
    item = &s->items[s->count++];
    item->option = option;
    item->where = hb_xstrdup(where);
    item->value = NULL;
    if (value) {
        item->value = hb_xmalloc(value_len + 1);
        memcpy(item->value, value, value_len);
        item->value[value_len] = '\0';
    }
}

/* Whose command line it is. */
struct dialect {
    const char *tool; /* ps, kill, ..., or NULL */
    unsigned hidden;  /* options with these flags cannot be abbreviated */
};

/* A word of argv, split into name and value. */
struct word {
    const char *text;
    size_t name_len;   /* up to `=` or the end */
    const char *value; /* after `=`, or NULL */
    unsigned hidden;   /* as in struct dialect */
};

static struct word word_split(const char *text, unsigned hidden)
{
    struct word w = {text, strcspn(text, "="), NULL, hidden};

    if (text[w.name_len] == '=')
        w.value = text + w.name_len + 1;
    return w;
}

/* Returns whether one of the option's names begins with the word's, and sets
 * *name to it. */
static int option_begins(const struct option *o, const struct word *w,
                         const char **name)
{
    int dashes = w->text[1] == '-' ? 2 : 1;

    if (o->flags & w->hidden)
        return 0;
    for (int n = 0; n < OPTION_NAMES_MAX && o->names[n]; n++) {
        int own = o->names[n][1] == '-' ? 2 : 1;

        if (own == dashes && !strncmp(o->names[n], w->text, w->name_len)) {
            *name = o->names[n];
            return 1;
        }
    }
    return 0;
}

static void ambiguous(const struct word *w, struct hb_error *err)
{
    struct hb_buf list = HB_BUF_INIT;
    const char *name = NULL;
    int shown = 0;

    for (size_t i = 0; i < options_table_count; i++) {
        if (!option_begins(&options_table[i], w, &name))
            continue;
        if (shown == 8) {
            hb_buf_puts(&list, ", ...");
            break;
        }
        hb_buf_printf(&list, "%s%s", shown++ ? ", " : "", name);
    }
    hb_error_set(err, HVD_EINVAL, "%.*s is ambiguous: it could be %s",
                 (int)w->name_len, w->text, hb_buf_data(&list));
    hb_buf_free(&list);
}

static void unknown(const struct word *w, struct hb_error *err)
{
    size_t count = 0;
    const char **names =
        hb_xcalloc(options_table_count * OPTION_NAMES_MAX, sizeof(*names));
    char *name = hb_xasprintf("%.*s", (int)w->name_len, w->text);
    const char *near, *program, *advice;

    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *o = &options_table[i];

        for (int n = 0; n < OPTION_NAMES_MAX && o->names[n]; n++)
            names[count++] = o->names[n];
    }
    near = hb_text_nearest(name, names, count);
    if (foreign_option(name, &program, &advice))
        hb_error_set(err, HVD_EINVAL, "%s is an option of %s: %s", name,
                     program, advice);
    else if (near)
        hb_error_set(err, HVD_EINVAL, "unknown option %s; did you mean %s?",
                     name, near);
    else
        hb_error_set(err, HVD_EINVAL, "unknown option %s; see hvdrun --help",
                     name);
    hb_free(name);
    hb_free(names);
}

/* Returns the option that a word means, or NULL with err set.  For `-Hvalue`,
 * sets the value in *w. */
static const struct option *option_lookup(struct word *w, struct hb_error *err)
{
    const struct option *found = option_find(w->text, w->name_len);
    const char *name;
    int count = 0;

    if (found)
        return found;
    for (size_t i = 0; i < options_table_count; i++) {
        if (option_begins(&options_table[i], w, &name)) {
            found = &options_table[i];
            count++;
        }
    }
    if (count > 1) {
        ambiguous(w, err);
        return NULL;
    }
    if (!found && w->text[1] != '-') {
        found = option_find(w->text, 2);
        if (found && found->arg == ARG_NONE)
            found = NULL;
        if (found) {
            w->name_len = 2;
            w->value = w->text + 2;
        }
    }
    if (!found)
        unknown(w, err);
    return found;
}

/* Returns whether argparse would take the word for an option, not for a
 * value. */
static int looks_like_option(const char *s)
{
    if (s[0] != '-' || s[1] == '\0')
        return 0;
    return !isdigit((unsigned char)s[1]) && s[1] != '.';
}

/* Returns the option's name for messages: as written, completed if
 * shortened. */
static const char *spelled(const struct option *o, const struct word *w)
{
    const char *name = o->names[0];

    option_begins(o, w, &name);
    for (int n = 0; n < OPTION_NAMES_MAX && o->names[n]; n++) {
        if (strlen(o->names[n]) == w->name_len &&
            !strncmp(o->names[n], w->text, w->name_len))
            return o->names[n];
    }
    return name;
}

static int scan_one(char *const **argv, const struct dialect *dialect,
                    struct settings *out, const struct option **stop,
                    struct hb_error *err)
{
    struct word w = word_split(**argv, dialect->hidden);
    const struct option *o = option_lookup(&w, err);
    const char *name, *tool = dialect->tool;
    char *pair = NULL;

    if (!o)
        return -HVD_EINVAL;
    name = spelled(o, &w);
    (*argv)++;
    if (tool && !(o->flags & OPTION_TOOL))
        return hb_error_set(err, HVD_EINVAL, "%s is not for hvdrun %s", name,
                            tool);
    if (!tool && (o->flags & OPTION_TOOL_ONLY))
        return hb_error_set(err, HVD_EINVAL, "%s is for hvdrun %.*s", name,
                            (int)strcspn(o->help, ":"), o->help);
    if (o->arg == ARG_NONE && w.value)
        return hb_error_set(err, HVD_EINVAL, "%s takes no value ('%s')", name,
                            w.value);
    if (o->arg != ARG_NONE && o->arg != ARG_OPTIONAL && !w.value) {
        if (!**argv || (looks_like_option(**argv) && !(o->flags & OPTION_DASH)))
            return hb_error_set(err, HVD_EINVAL, "%s needs a value: %s %s",
                                name, name, o->metavar);
        w.value = *(*argv)++;
    }
    if ((o->flags & OPTION_PAIR) && !strchr(w.value, ',') && **argv) {
        pair = hb_xasprintf("%s,%s", w.value, *(*argv)++);
        w.value = pair;
    }
    settings_add(out, o, name, w.value, w.value ? strlen(w.value) : 0);
    hb_free(pair);
    if (o->flags & OPTION_STOP)
        *stop = o;
    return 0;
}

/* Splits argv into settings and the command; options come first, also of
 * tools. */
static int scan(char *const *argv, const struct dialect *dialect,
                struct settings *out, struct hb_strv *command,
                const struct option **stop, struct hb_error *err)
{
    while (*argv && !*stop && (*argv)[0] == '-' && (*argv)[1]) {
        int rc;

        if (!strcmp(*argv, "--")) {
            argv++;
            break;
        }
        rc = scan_one(&argv, dialect, out, stop, err);
        if (rc < 0)
            return rc;
    }
    return *argv ? hb_strv_add_all(command, argv) : 0;
}

static int apply_environment(struct options *o, struct hb_error *err)
{
    const char *value = hb_knob("START_TIMEOUT");
    int64_t ms = 0;
    int rc;

    if (!value)
        return 0;
    rc = hb_parse_duration_ms(value, &ms, err);
    if (!rc && (ms < 1 || ms > OPTIONS_TIME_MAX_MS))
        rc = hb_error_set(err, HVD_EINVAL, "'%s' is not from 1ms to 24 days",
                          value);
    if (rc < 0)
        return hb_error_context(err,
                                "HVD_START_TIMEOUT or HOROVOD_START_TIMEOUT");
    o->start_timeout_ms = ms;
    return 0;
}

static int check_launcher(struct options *o, struct hb_error *err)
{
    if (o->rsh && o->launcher == REMOTE_AUTO)
        o->launcher = REMOTE_RSH;
    if ((o->launcher == REMOTE_RSH) == (o->rsh != NULL))
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        o->rsh ? "--rsh: it excludes the other launchers"
                               : "--launcher rsh: give the command with --rsh "
                                 "'COMMAND {host}'");
}

enum { DRAIN_DIGITS_MIN = 6 };

/* Takes the words behind `hvdrun drain` as its list of hosts. */
static int take_drain(struct options *o, struct hb_error *err)
{
    struct hb_buf list = HB_BUF_INIT;

    if (!o->command.count || o->hosts || o->hostfile)
        return hb_error_set(err, HVD_EINVAL,
                            "drain: which hosts? name them after the options");
    if (o->job && (strlen(o->job) < DRAIN_DIGITS_MIN ||
                   strspn(o->job, "0123456789abcdef") != strlen(o->job)))
        return hb_error_set(err, HVD_EINVAL,
                            "--job %s: give %d or more digits of the id that "
                            "hvdrun ps shows",
                            o->job, DRAIN_DIGITS_MIN);
    for (size_t i = 0; i < o->command.count; i++)
        hb_must(
            hb_buf_printf(&list, "%s%s", i ? "," : "", o->command.items[i]));
    o->hosts = hb_buf_detach(&list);
    return 0;
}

static int check_tool(struct options *o, struct hb_error *err)
{
    int takes = o->action == OPTIONS_KILL || o->action == OPTIONS_DOCTOR;

    if (o->action == OPTIONS_DRAIN)
        return take_drain(o, err);
    if (o->command.count && !takes)
        return hb_error_set(err, HVD_EINVAL,
                            "'%s': nothing can follow the options here",
                            o->command.items[0]);
    if (o->action == OPTIONS_KILL && !o->command.count && !o->all)
        return hb_error_set(err, HVD_EINVAL,
                            "kill: which job? give its id (see hvdrun ps) "
                            "or --all");
    return 0;
}

/* Refuses what only mpirun understands if it does not start the ranks.
 * horovodrun ignores it. */
static int check_mpi_only(struct options *o, struct hb_error *err)
{
    const char *name = o->mpi_args ? "--mpi-args" : "--binding-args";

    if (o->mpi || (!o->mpi_args && !o->binding_args))
        return 0;
    if (!o->horovodrun)
        return hb_error_set(err, HVD_EINVAL, "%s is for --mpi", name);
    hb_must(hb_strv_addf(&o->warnings, "%s: ignored without --mpi", name));
    return 0;
}

int options_grows(const struct options *o)
{
    return o->discovery_script || o->watch || o->spares > 0 ||
           (o->max_np > 0 && o->max_np != o->num_proc);
}

/* Checks where the hosts of a job that grows come from. */
static int check_growth(const struct options *o, struct hb_error *err)
{
    if (o->mpi)
        return 0; /* refused by name */
    if (o->discovery_script && (o->hosts || o->hostfile))
        return hb_error_set(err, HVD_EINVAL,
                            "--host-discovery-script: it excludes -H and "
                            "--hostfile");
    if (o->discovery_script && !o->num_proc && !o->min_np)
        return hb_error_set(err, HVD_EINVAL,
                            "--host-discovery-script: give -np, the number of "
                            "ranks to start with");
    return 0;
}

/* Returns the option that makes the job elastic, or NULL. */
static const char *elastic_option(const struct options *o)
{
    return o->min_np           ? "--min-np"
           : o->restart_failed ? "--restart-failed"
           : o->stop_at_commit ? "--stop-at-commit"
           : o->preempt_file   ? "--preempt-file"
           : o->preempt_script ? "--preempt-script"
           : o->np_multiple    ? "--np-multiple"
           : o->whole_hosts    ? "--elastic-unit"
           : options_grows(o)  ? "a job that grows"
                               : NULL;
}

/* Checks what an elastic job excludes.  How many ranks there are is known only
 * with the plan (host_plan.c). */
static int check_elastic(struct options *o, struct hb_error *err)
{
    const char *timeline = hb_env_get(&o->knobs, "HVD_TIMELINE");
    const char *name = elastic_option(o);

    if (check_growth(o, err) < 0)
        return err->status;
    if (!name)
        return 0;
    if (o->spec.wireup == CONTROL_WIREUP_PMIX ||
        o->spec.wireup == CONTROL_WIREUP_PMI1)
        return hb_error_set(err, HVD_EINVAL,
                            "%s cannot be used with --wireup: an MPI program "
                            "cannot go on without a rank",
                            name);
    if (timeline && strcmp(timeline, "DYNAMIC") != 0)
        return hb_error_set(err, HVD_EINVAL,
                            "%s cannot be used with --timeline-filename: a "
                            "rank that is lost leaves no timeline",
                            name);
    o->spec.elastic = 1;
    o->spec.restart = o->restart_failed > 0 || options_grows(o);
    return 0;
}

/* Warns of a command that starts ranks itself: every rank would start some. */
static int check_command(struct options *o, struct hb_error *err)
{
    const char *advice, *launcher;

    if (!o->command.count)
        return hb_error_set(err, HVD_EINVAL,
                            "no command given; see hvdrun --help");
    if (!o->command.items[0][0])
        return hb_error_set(err, HVD_EINVAL, "the command is an empty string");
    launcher = foreign_launcher(o->command.items, &advice);
    if (launcher)
        hb_must(
            hb_strv_addf(&o->warnings,
                         "%s starts ranks itself, and hvdrun starts it once "
                         "for each rank: give hvdrun %s instead",
                         launcher, advice));
    return 0;
}

/* Returns whether the hosts come from a batch system: always if one is named,
 * else if the environment shows one. */
static int in_allocation(const struct options *o)
{
    struct hb_strv env = {environ, 0, 0};

    while (environ && environ[env.count])
        env.count++;
    if (o->allocation != ALLOCATION_AUTO)
        return o->allocation != ALLOCATION_NONE;
    return allocation_is_present(&env);
}

static int check_whole(struct applier *a, struct hb_error *err)
{
    struct options *o = a->options;

    if (check_launcher(o, err) < 0)
        return err->status;
    if (o->action >= OPTIONS_PS)
        return check_tool(o, err);
    if (o->json && o->action != OPTIONS_CHECK_BUILD)
        return hb_error_set(err, HVD_EINVAL,
                            "--json is for hvdrun ps, doctor and "
                            "--check-build");
    if (o->action != OPTIONS_RUN && o->action != OPTIONS_DRY_RUN)
        return 0;
    if (check_mpi_only(o, err) < 0 || check_elastic(o, err) < 0 ||
        check_command(o, err) < 0)
        return err->status;
    if (!o->num_proc && !o->hosts && !o->hostfile && !o->discovery_script &&
        !in_allocation(o))
        return hb_error_set(err, HVD_EINVAL,
                            "how many ranks? give -np N or -H HOST:SLOTS");
    if (o->num_proc && o->stdin_rank >= o->num_proc)
        return hb_error_set(err, HVD_EINVAL, "--stdin %d: ranks are 0 to %d",
                            o->stdin_rank, o->num_proc - 1);
    return 0;
}

/* Refuses options with --mpi that only hvdrun's agents carry out. */
static int check_mpi(const struct options *o, const struct settings *settings,
                     struct hb_error *err)
{
    for (size_t i = 0; o->mpi && i < settings->count; i++) {
        const struct setting *s = &settings->items[i];

        if (s->option->flags & OPTION_AGENT)
            return hb_error_set(err, HVD_EINVAL,
                                "%s cannot be used with --mpi: mpirun has "
                                "nothing like it",
                                s->where);
    }
    return 0;
}

/* Returns the last --config-file, or NULL. */
static const char *config_named(const struct settings *flags)
{
    const struct option *config = option_find("--config-file", 13);

    for (size_t i = flags->count; i-- > 0;) {
        if (flags->items[i].option == config)
            return flags->items[i].value;
    }
    return NULL;
}

/* Sets o->action and returns the tool's name if argv[1] names one; else
 * NULL. */
static const char *find_tool(struct options *o, int argc, char *const argv[])
{
    static const struct {
        const char *name;
        enum options_action action;
    } tools[] = {
        {"ps", OPTIONS_PS},         {"kill", OPTIONS_KILL},
        {"clean", OPTIONS_CLEAN},   {"drain", OPTIONS_DRAIN},
        {"doctor", OPTIONS_DOCTOR},
    };

    for (size_t i = 0; argc > 1 && i < sizeof(tools) / sizeof(tools[0]); i++) {
        if (!strcmp(argv[1], tools[i].name)) {
            o->action = tools[i].action;
            return tools[i].name;
        }
    }
    return NULL;
}

/* Sets what a call by the name of horovodrun, or of a tool, implies. */
static struct dialect find_dialect(struct options *o, int argc,
                                   char *const argv[])
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;

    if (argc > 0 && !strcmp(slash ? slash + 1 : argv[0], "horovodrun")) {
        o->horovodrun = 1;
        o->horovod = HOROVOD_AUTO;
        return (struct dialect){NULL, OPTION_OWN};
    }
    return (struct dialect){find_tool(o, argc, argv), 0};
}

int options_parse(struct options *o, int argc, char *const argv[],
                  struct hb_error *err)
{
    struct settings flags = {NULL, 0, 0}, file = {NULL, 0, 0};
    struct applier a = {.options = o};
    const struct option *stop = NULL;
    const struct dialect dialect = find_dialect(o, argc, argv);
    const char *path;
    int skip = dialect.tool ? 2 : 1, rc = 0;

    if (argc > 0)
        rc = scan(argv + skip, &dialect, &flags, &o->command, &stop, err);

    if (rc < 0)
        goto out;
    if (stop) {
        o->action = (enum options_action)stop->number;
        goto out;
    }
    rc = apply_environment(o, err);
    path = config_named(&flags);
    if (!rc && path)
        rc = config_read(path, &file, err);
    if (!rc)
        rc = settings_apply(&a, &file, err);
    a.from_flags = 1;
    if (!rc)
        rc = settings_apply(&a, &flags, err);
    if (!rc)
        rc = check_whole(&a, err);
    if (!rc)
        rc = check_mpi(o, &file, err);
    if (!rc)
        rc = check_mpi(o, &flags, err);
out:
    settings_free(&file);
    settings_free(&flags);
    return rc;
}
