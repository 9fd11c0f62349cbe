/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's options: one table (options_table.c) says for each option its
 * names, argument, group, help line, and where its value goes: a field of
 * struct options, or the environment variable that it means to the
 * workers.  Parsing, --help, the nearest-option hint and --config-file
 * all read that table, so they cannot disagree.
 */
#ifndef HVDRUN_OPTIONS_H
#define HVDRUN_OPTIONS_H

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/hosts/batch/allocation.h"
#include "lib/hosts/slot_plan.h"
#include "lib/protocol/control/control.h"
#include "lib/remote/remote.h"

#include <stdint.h>

enum options_action {
    OPTIONS_RUN,
    OPTIONS_DRY_RUN,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_CHECK_BUILD,
    OPTIONS_HELP_ALL,
    OPTIONS_COMPLETION,
    /* `hvdrun ps ...`: the first word of the command line */
    OPTIONS_PS,
    OPTIONS_KILL,
    OPTIONS_CLEAN,
    OPTIONS_DRAIN,
    OPTIONS_DOCTOR,
};

/* In the order of OPTIONS_SHELLS. */
enum options_shell { SHELL_BASH, SHELL_ZSH, SHELL_FISH };

#define OPTIONS_SHELLS "bash zsh fish"

enum options_bind_gpu { GPU_AUTO, GPU_BIND };

/* Whether Python ranks can import hvd as horovod: never; unless there is a
 * Horovod; in any case. */
enum options_horovod { HOROVOD_OFF, HOROVOD_AUTO, HOROVOD_FORCE };

struct options {
    enum options_action action;
    int num_proc;                      /* 0: not given */
    char *hosts;                       /* -H */
    char *hostfile;                    /* --hostfile */
    enum allocation_system allocation; /* where hosts come from without both */
    struct hb_strv set_env; /* -x and --env-file, NAME=VALUE, in order */
    int no_env;             /* workers do not inherit hvdrun's own */
    struct hb_strv knobs;   /* tunables, NAME=VALUE; both HVD_ and
                               HOROVOD_ spellings */
    enum plan_map map;
    int npernode; /* 0: not given */
    int oversubscribe;
    char *wdir; /* absolute, on every host; NULL: hvdrun's own */
    char *output_filename;
    struct hb_strv reports; /* --report */
    char *http;             /* --http: where; or NULL */
    int status;             /* --status */
    int timestamp;
    int tag;                  /* 1 unless --no-tag-output */
    int stdin_rank;           /* JOB_STDIN_* */
    int64_t start_timeout_ms; /* default 30 s */
    int64_t within_ms;        /* drain; 0: not given */
    char *job;            /* drain: digits that an id begins with; NULL: any */
    int64_t timeout_ms;   /* 0: none */
    int64_t heartbeat_ms; /* default 15 s; 0: never */
    int min_np;           /* 0: not given, the job is not elastic */
    int max_np;           /* 0: not given */
    char *discovery_script;    /* a command of the shell */
    int slots_per_host;        /* of hosts without slots; default 1 */
    int watch;                 /* the hostfile may change */
    int spares;                /* ranks beyond max_np that wait */
    int64_t discovery_ms;      /* between two questions; default 1 s */
    int64_t cooldown_least_ms; /* strikes.h */
    int64_t cooldown_most_ms;
    int np_multiple;    /* 0: not given */
    int whole_hosts;    /* --elastic-unit host */
    int reset_limit;    /* default -1: none */
    int restart_failed; /* restarts of each rank; default 0 */
    int stop_at_commit;
    char *preempt_file, *preempt_script; /* or NULL */
    int64_t elastic_timeout_ms;          /* default 600 s */
    struct control_spec spec;            /* what every agent must know */
    int verbose;
    enum hb_log_level log_level;
    int log_timestamp;
    char *agent_path; /* NULL: found beside hvdrun, and sent to hosts */
    enum remote_launcher launcher;
    char *rsh; /* command template; selects the launcher */
    int ssh_port;
    char *ssh_user, *ssh_identity, *ssh_config, *ssh_known_hosts;
    int max_startups;         /* default 16 */
    char *network_interfaces; /* names and CIDRs, comma-separated */
    int mpi;                  /* mpirun starts the ranks */
    char *mpi_args;           /* extra arguments for mpirun */
    char *binding_args;       /* placement arguments, instead of hvdrun's */
    enum options_horovod horovod;
    char *compat_dir; /* its folder, once found (compat.h); or NULL */
    int horovodrun;   /* called by that name: its command line */
    char *config_file;
    enum options_shell shell; /* --completion */
    int json;                 /* ps, doctor, --check-build */
    int all;                  /* kill */
    int dry_run;              /* clean */
    struct hb_strv command;   /* the ranks' argv; kill: job ids */
    /* Lines that the caller logs once it knows log_level. */
    struct hb_strv warnings;
    struct hb_strv notes; /* at info */
};

void options_init(struct options *o);
void options_fini(struct options *o);

/* Parses argv[1..] and the config file that it names; flags win over the file,
 * wherever they stand.  If argv[1] is ps, kill, drain, clean or doctor, that is
 * the action, and only the options that concern it are accepted.  If argv[0] is
 * horovodrun, with or without a path, there are no such actions, abbreviations
 * mean horovodrun's options, and --horovod is implied.  0, or negative
 * with err set: the caller prints it and exits 2.  After 0 with OPTIONS_RUN or
 * OPTIONS_DRY_RUN there is a command, and at least one of num_proc, hosts,
 * hostfile and an allocation. */
int options_parse(struct options *o, int argc, char *const argv[],
                  struct hb_error *err);

/* Returns whether the job may get ranks and hosts while it runs. */
int options_grows(const struct options *o);

/* Returns the help text, grouped: short, or with every option; heap strings
 * (hb_free). */
char *options_help(void);
char *options_help_all(void);

/* Returns the script that completes command lines of hvdrun in a shell; a heap
 * string (hb_free). */
char *options_completion(enum options_shell shell);

#endif
