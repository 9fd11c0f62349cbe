/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of providers: what hvd_init, hvd_shutdown and the making of process
 * sets call for each plug-in, without knowing it.  A plug-in's module in this
 * folder defines its provider; a function that it does not need is NULL.
 */
#ifndef HVD_CORE_PROVIDER_H
#define HVD_CORE_PROVIDER_H

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "runtime/core/sched/request.h"

#include <stdint.h>

struct hvd__host;
struct hvd__set;
struct segment_head;
struct worker_welcome;

/* A call whose buffers a provider looks at before it is issued. */
struct hvd__issue {
    struct hvd_request *req;
    struct hvd__part *parts; /* as req->op.parts, to be changed */
    int me;                  /* place in the process set */
    void *stream;            /* as the caller has named it, or NULL */
};

struct hvd__world_memory {
    uint32_t epoch;
    uint64_t arena_bytes, bytes; /* of one rank's arena; of the whole segment */
};

/* What a provider does that knows the ranks of a world which another launcher
 * than hvdrun has started, so that there is no agent. */
struct hvd__world_ops {
    /* Finds out whether such a launcher has started this process: 1, 0, or
     * negative with err set. */
    int (*started)(struct hb_error *err);

    /* Finds out whether, although there is an agent, a setting asks for this
     * provider, and it can serve: hvdrun has wired up the ranks for it. As
     * `started`. */
    int (*wanted)(struct hb_error *err);

    /* Checks, in a world made by an agent, that no setting asks for this
     * provider: 0, or negative with err set. */
    int (*refuse)(struct hb_error *err);

    /* Fills in *w as an agent would, after `started`.  leave: called when the
     * process exits, to tell the peers that this rank leaves; the same in all
     * calls.  Returns 0, or negative with err set and nothing held. */
    int (*open)(struct worker_welcome *w, uint64_t deadline_ns,
                void (*leave)(void), struct hb_error *err);
    int (*is_open)(void);

    /* Agrees on whether all ranks succeeded; all ranks call it, each with its
     * own status rc.  Returns 0 if all are 0; rc if that is negative; else
     * -HVD_ESHUTDOWN with err naming a rank that failed. */
    int (*agree)(int rc, struct hb_error *err);

    /* Makes and maps the segment of this host's ranks, which the caller unmaps.
     * *head NULL and 0: these ranks do not share memory.  All ranks call it and
     * reach the same result.  -HVD_EMISMATCH: the ranks of a host differ in
     * arena_bytes. */
    int (*segment)(const struct hvd__world_memory *memory,
                   struct segment_head **head, struct hb_error *err);

    /* Returns the index, or the name, of a world rank's host. */
    int (*host)(int rank);
    const char *(*host_name)(int rank);

    /* Returns 0, or negative with err set when a process of this host is gone;
     * for the shared-memory plane. */
    int (*lost)(void *arg, struct hb_error *err);
};

struct hvd__provider {
    const struct hvd__world_ops *world; /* NULL: it knows no ranks */

    /* Opens the plug-in in hvd_init, when this rank knows the others and has
     * read the knobs; does nothing if the plug-in is not wanted.  Returns 0 or
     * negative with err set. */
    int (*open)(const struct hb_log *log, struct hb_error *err);

    /* Makes s->plane for host memory of the n world ranks `ranks`; this rank is
     * ranks[me].  Returns 1; 0 if it does not serve these ranks, as all of them
     * find; or negative with err set. */
    int (*plane)(const struct hvd__host *h, struct hvd__set *s,
                 const int *ranks, int n, int me, struct hb_error *err);

    /* Puts a plane for other memory on top of s->plane, if it is open.  Returns
     * 0, or negative with err set and s->plane NULL. */
    int (*wrap)(struct hvd__set *s, const int *ranks, int n, int me,
                struct hb_error *err);

    /* Finds out where a call's buffers are, refuses what cannot be carried out
     * there, and sets op->device.ready to what the plane has to wait for, if
     * anything. Returns 0, or negative with the request's err set. */
    int (*issue)(const struct hvd__issue *i);

    /* Gives back op->device.ready of an operation that is over or never
     * began. */
    void (*release)(void *ready);

    /* Fills in the counters of the plug-in. */
    void (*stats)(struct hvd_stats *stats);

    /* Announces that this rank leaves, so that the end of its process is no
     * failure any more. */
    void (*leave)(void);

    /* Closes the plug-in after the last plane was freed; idempotent. */
    void (*close)(void);
};

/* Calls a function of all providers, in their order: plane until one has made
 * it, the others until one fails. */
int hvd__providers_open(const struct hb_log *log, struct hb_error *err);
int hvd__providers_plane(const struct hvd__host *h, struct hvd__set *s,
                         const int *ranks, int n, int me, struct hb_error *err);
int hvd__providers_wrap(struct hvd__set *s, const int *ranks, int n, int me,
                        struct hb_error *err);
void hvd__providers_stats(struct hvd_stats *stats);
void hvd__providers_leave(void);
void hvd__providers_close(void);

/* Calls issue of the provider that has it.  It explains why it cannot be used
 * if it is not open. */
int hvd__providers_issue(const struct hvd__issue *issue);

/* Sets *world to the functions of the first provider whose launcher has started
 * this process or, with an agent, that is wanted instead; NULL if there is
 * none. Returns 0, or negative with err set. */
int hvd__providers_started(int has_agent, const struct hvd__world_ops **world,
                           struct hb_error *err);
/* Returns the functions of the provider that has opened the world, or NULL. */
const struct hvd__world_ops *hvd__providers_world(void);
/* Calls refuse of all. */
int hvd__providers_refuse(struct hb_error *err);

#endif
