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
#include "lib/protocol/control.h"

#include <stdint.h>

enum options_action {
    OPTIONS_RUN,
    OPTIONS_DRY_RUN,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_CHECK_BUILD,
    OPTIONS_HELP_ALL,
};

enum options_bind_gpu { GPU_AUTO, GPU_BIND };

struct options {
    enum options_action action;
    int num_proc;           /* 0: not given */
    char *hosts;            /* -H */
    char *hostfile;         /* --hostfile */
    struct hb_strv set_env; /* -x and --env-file, NAME=VALUE, in order */
    int no_env;             /* workers do not inherit hvdrun's own */
    struct hb_strv knobs;   /* tunables, NAME=VALUE; both HVD_ and
                               HOROVOD_ spellings */
    char *wdir;             /* absolute; NULL: hvdrun's own */
    char *output_filename;
    int timestamp;
    int tag;                  /* 1 unless --no-tag-output */
    int stdin_rank;           /* JOB_STDIN_* */
    int64_t start_timeout_ms; /* default 30 s */
    int64_t timeout_ms;       /* 0: none */
    int64_t grace_ms;         /* default 5 s */
    int gpus_per_rank;        /* default 1 */
    int bind_gpu;             /* set CUDA_VISIBLE_DEVICES per rank */
    enum control_bind bind;
    int verbose;
    enum hb_log_level log_level;
    int log_timestamp;
    char *agent_path; /* NULL: found beside hvdrun */
    char *config_file;
    struct hb_strv command; /* the ranks' argv */
    /* One line each, for the caller to log once it knows log_level. */
    struct hb_strv warnings;
    struct hb_strv notes; /* at info */
};

void options_init(struct options *o);
void options_fini(struct options *o);

/* Parses argv[1..] and the config file it names (flags win wherever they
 * stand).  0, or negative with one line in err: the caller prints it and
 * exits 2.  After 0 with OPTIONS_RUN or OPTIONS_DRY_RUN there is a command
 * and at least one of num_proc, hosts and hostfile. */
int options_parse(struct options *o, int argc, char *const argv[],
                  struct hb_error *err);

/* The grouped help text, short or with every option; heap strings
 * (hb_free). */
char *options_help(void);
char *options_help_all(void);

#endif
