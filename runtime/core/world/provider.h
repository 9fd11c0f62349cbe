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
#include "runtime/hvd.h"

struct hvd__host;
struct hvd__set;

struct hvd__provider {
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

#endif
