/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of hvdrun's options, and the settings that argv and the config
 * file are turned into before any takes effect.
 *
 * Scanning (options.c) only recognises options and makes a list of settings:
 * an option, its value as text, and where it was written.  The config file
 * yields such a list, too.  Applying (options_apply.c) checks the values and
 * stores them, the file's first, so that flags win wherever they stand and
 * nothing is read twice.
 */
#ifndef HVDRUN_OPTIONS_TABLE_H
#define HVDRUN_OPTIONS_TABLE_H

#include "cmd/hvdrun/options/options.h"

enum {
    OPTION_NAMES_MAX = 4,
    OPTIONS_TIME_MAX_MS = INT32_MAX, /* 24 days */
};

enum option_group {
    GROUP_JOB,
    GROUP_HOSTS,
    GROUP_ENV,
    GROUP_OUTPUT,
    GROUP_TIME,
    GROUP_PLACE,
    GROUP_TUNE,
    GROUP_AUTOTUNE,
    GROUP_TRACE,
    GROUP_INFO,
    GROUP_COMPAT, /* accepted for compatibility with horovodrun */
    GROUP_COUNT
};

enum option_arg {
    ARG_NONE,     /* a switch */
    ARG_OPTIONAL, /* nothing, or after `=` one word of `choices` */
    ARG_STRING,
    ARG_INT,      /* min to max */
    ARG_INT_LIST, /* comma-separated, each min to max */
    ARG_NUMBER,   /* min to max */
    ARG_DURATION, /* min to max in ms; a bare number is in seconds */
    ARG_CHOICE,   /* one word of `choices` */
};

enum option_target {
    TO_INT,     /* int field; a switch stores `number` */
    TO_MS,      /* int64_t field; with `env` also a knob */
    TO_STRING,  /* char * field */
    TO_KNOB,    /* HVD_<env> and HOROVOD_<env> */
    TO_ENV,     /* exactly <env> */
    TO_CALL,    /* call() */
    TO_NOTHING, /* accepted and noted at info: has no effect */
    TO_REFUSED, /* recognised, not supported by this version */
};

enum {
    OPTION_HIDDEN = 1u << 0,  /* only in --help-all and the manual */
    OPTION_NO_FILE = 1u << 1, /* not in a config file */
    OPTION_LIST = 1u << 2,    /* a list in the file is several settings */
    OPTION_STOP = 1u << 3,    /* parsing stops here: --help, --version */
    OPTION_JOIN = 1u << 4,    /* ... or one setting, joined with commas */
    OPTION_TOOL = 1u << 5,    /* also for ps, kill, clean and doctor */
    OPTION_TOOL_ONLY = 1u << 6,
    OPTION_AGENT = 1u << 7, /* done by hvdrun's agents: not with --mpi */
    OPTION_DASH = 1u << 8,  /* its value may begin with a dash */
    OPTION_OWN = 1u << 9,   /* horovodrun has no such option */
    OPTION_PAIR = 1u << 10, /* two words, or one with a comma */
};

struct setting;
struct applier;

struct option {
    const char *names[OPTION_NAMES_MAX]; /* the first is the long name */
    const char *metavar;
    const char *choices; /* ARG_CHOICE and ARG_OPTIONAL: words, one blank
                            between */
    const char *env;
    const char *value;  /* value that a switch stores: TO_KNOB, TO_ENV */
    int number;         /* the same for TO_INT and TO_CALL */
    const char *help;   /* one line */
    const char *limits; /* appended to a range error; or NULL */
    int (*call)(struct applier *a, const struct setting *s,
                struct hb_error *err);
    int64_t min, max;
    int64_t scale; /* TO_KNOB of an ARG_INT: multiplied, 0 means 1 */
    size_t field;  /* offset in struct options */
    enum option_group group;
    enum option_arg arg;
    enum option_target target;
    unsigned flags;
};

extern const struct option options_table[];
extern const size_t options_table_count;
const char *option_group_title(enum option_group group);

/* Returns why the knob that an option sets has no effect in the ranks; NULL if
 * it has an effect, or the option sets no knob. */
const char *option_idle_why(const struct option *option);

/* Returns the option with this exact name (dashes included), or NULL. */
const struct option *option_find(const char *name, size_t len);

/* One option as it was given. */
struct setting {
    const struct option *option;
    char *where; /* "--wdir", or "job.yaml:3: wdir" */
    char *value; /* NULL for a switch */
};

struct settings {
    struct setting *items;
    size_t count, cap;
};

void settings_free(struct settings *s);
void settings_add(struct settings *s, const struct option *option,
                  const char *where, const char *value, size_t value_len);

struct applier {
    struct options *options;
    int from_flags; /* else from the config file */
    /* where -H and --hostfile come from: 0 nowhere, 1 the file, 2 the flags */
    int hosts_from, hostfile_from;
    int interfaces_from_file; /* network_interfaces comes from the file */
    int log_level_given;
    const struct option *controller; /* --gloo or --mpi: the last one given
                                        by the file or the flags */
    int controller_from_flags;
};

int settings_apply(struct applier *a, const struct settings *s,
                   struct hb_error *err);

/* Applies the setting to the options.  The table names these functions. */
int apply_hosts(struct applier *a, const struct setting *s,
                struct hb_error *err);
int apply_allocation(struct applier *a, const struct setting *s,
                     struct hb_error *err);
int apply_env(struct applier *a, const struct setting *s, struct hb_error *err);
int apply_env_file(struct applier *a, const struct setting *s,
                   struct hb_error *err);
int apply_wdir(struct applier *a, const struct setting *s,
               struct hb_error *err);
int apply_stdin(struct applier *a, const struct setting *s,
                struct hb_error *err);
int apply_bind(struct applier *a, const struct setting *s,
               struct hb_error *err);
int apply_wireup(struct applier *a, const struct setting *s,
                 struct hb_error *err);
int apply_log_level(struct applier *a, const struct setting *s,
                    struct hb_error *err);
int apply_log_time(struct applier *a, const struct setting *s,
                   struct hb_error *err);
int apply_path(struct applier *a, const struct setting *s,
               struct hb_error *err);
int apply_launcher(struct applier *a, const struct setting *s,
                   struct hb_error *err);
int apply_unit(struct applier *a, const struct setting *s,
               struct hb_error *err);
int apply_map(struct applier *a, const struct setting *s, struct hb_error *err);
int apply_interfaces(struct applier *a, const struct setting *s,
                     struct hb_error *err);
int apply_action(struct applier *a, const struct setting *s,
                 struct hb_error *err);
int apply_completion(struct applier *a, const struct setting *s,
                     struct hb_error *err);
int apply_controller(struct applier *a, const struct setting *s,
                     struct hb_error *err);
int apply_cooldown(struct applier *a, const struct setting *s,
                   struct hb_error *err);
int apply_report(struct applier *a, const struct setting *s,
                 struct hb_error *err);
int apply_http(struct applier *a, const struct setting *s,
               struct hb_error *err);
int apply_horovod(struct applier *a, const struct setting *s,
                  struct hb_error *err);

#endif
