/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks again and again which hosts there are: runs a discovery script, or reads
 * a hostfile.
 *
 * The script (script.h) has limit_ms and may print DISCOVERER_BYTES_MAX.  The
 * next run begins a pause after the end of the last one.  Runs on the loop; no
 * callback runs inside a call.
 */
#ifndef HVD_JOB_DISCOVERER_H
#define HVD_JOB_DISCOVERER_H

#include "lib/base/log.h"
#include "lib/hosts/hostlist.h"

#include <uv.h>

enum { DISCOVERER_LIMIT_MS = 10000, DISCOVERER_BYTES_MAX = 1 << 20 };

struct discoverer;

struct discoverer_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    const char *script;   /* or NULL: */
    const char *hostfile; /* read this file */
    int slots;            /* of a host without a number of slots; 0: 1 */
    /* The hosts that the job was started with, to which the first answer is
     * compared; or NULL. */
    const struct hostlist *before;
    int64_t pause_ms, limit_ms;
    /* The hosts are others than before; also the first time.  The list is
     * borrowed. */
    void (*on_hosts)(void *arg, const struct hostlist *hosts, int slots);
    /* The answer is refused, or there was none: once until a good one. */
    void (*on_trouble)(void *arg, const char *why);
    void *arg;
};

/* Starts asking.  The config's strings must live until discoverer_close. */
struct discoverer *discoverer_open(const struct discoverer_config *config);
/* Stops; the loop frees it. */
void discoverer_close(struct discoverer *d);

#endif
