/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches which hosts will go away: reads a file, or runs a script, again and
 * again (going.h).
 *
 * The script (script.h) has limit_ms and may print GOING_BYTES_MAX; the next
 * run begins pause_ms after the last one has ended.  A file that does not exist
 * names no host.  Runs on the loop; no callback runs inside a call.
 */
#ifndef HVD_JOB_PREEMPT_H
#define HVD_JOB_PREEMPT_H

#include "lib/base/log.h"
#include "lib/hosts/going.h"

#include <stdint.h>
#include <uv.h>

struct preempt;

struct preempt_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    const char *file; /* or NULL: */
    const char *script;
    int64_t pause_ms, limit_ms;
    /* Called with the hosts of each answer that names any. */
    void (*on_going)(void *arg, const struct going *list, size_t count);
    /* The answer is refused, or there was none: once until a good one. */
    void (*on_trouble)(void *arg, const char *why);
    void (*on_close)(void *arg); /* after preempt_close; it is freed */
    void *arg;
};

/* Starts watching.  The config's strings must live until on_close. */
struct preempt *preempt_open(const struct preempt_config *config);
void preempt_close(struct preempt *p);

#endif
