/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launchers: the ways to open a stream to a host's shell, one row each.
 * What differs between them is in their rows; no other file asks which one a
 * host uses.  The command line names REMOTE_RSH, because --rsh implies it.
 */
#ifndef HVD_REMOTE_LAUNCHERS_H
#define HVD_REMOTE_LAUNCHERS_H

#include "lib/base/error.h"

struct remote;
struct remote_host;
struct transport_events;

enum remote_launcher {
    REMOTE_AUTO, /* ssh2 if it supports the configuration, else openssh */
    REMOTE_SSH2,
    REMOTE_OPENSSH,
    REMOTE_RSH,
    REMOTE_SLURM,
    REMOTE_LAUNCHERS
};

struct launcher {
    const char *name;       /* for --launcher */
    int needs_config;       /* the user's ssh configuration is read first */
    int starts_max;         /* hosts at once; 0: its plug-in bounds them */
    int obeys_max_startups; /* --max-startups may lower starts_max */
    int names_differ;       /* each name counts as a host of its own */
    int ends_loudly;        /* reports shells that hvdrun has closed */
    int with_mpi;           /* mpirun reaches hosts this way, too */
    /* for hosts that it cannot serve; NULL: they fail */
    const struct launcher *instead;
    /* Checks its options.  0 or negative with err set.  May be NULL. */
    int (*check)(struct remote *r, struct hb_error *err);
    /* Loads its plug-in, once.  0, or -HVD_EUNSUPPORTED with err set.  NULL: it
     * runs a command. */
    int (*load)(struct remote *r, struct hb_error *err);
    /* Opens the stream to the host's shell.  0 or negative with err set. */
    int (*open)(struct remote_host *h, const struct transport_events *e,
                struct hb_error *err);
    /* Explains why the stream ended before the agent ran; `ended` is on_end's
     * err.  1 with err set, or 0 if it does not know: then the last words of
     * the stream explain it.  NULL: it never knows. */
    int (*explain)(struct remote_host *h, const struct hb_error *ended,
                   struct hb_error *err);
    /* Returns whether its command has ended as ssh does when ssh itself fails.
     * NULL: it runs no ssh. */
    int (*ended_as_ssh)(const struct remote_host *h);
};

extern const struct launcher launcher_table[REMOTE_LAUNCHERS];

/* Finds a launcher by its name, in upper or lower case.  0, or -HVD_EINVAL with
 * err set: "must be one of ...". */
int launcher_find(const char *name, enum remote_launcher *out,
                  struct hb_error *err);

#endif
