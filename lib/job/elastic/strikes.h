/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides for how long a host is left alone after a failure there.
 *
 * The n-th strike against a host keeps it out of use for LEAST * 2^(n-1), plus
 * up to LEAST so that hosts that fail together are not tried together, and at
 * most MOST.  What happens during that time is no further strike.  A strike is
 * forgiven every ten minutes without one.  Pure: no clock, and randomness from
 * the caller.
 */
#ifndef HVD_JOB_STRIKES_H
#define HVD_JOB_STRIKES_H

#include <stddef.h>
#include <stdint.h>

enum {
    STRIKES_LEAST_MS = 10000, /* if the user does not say */
    STRIKES_MOST_MS = 300000,
    STRIKES_HOSTS_MAX = 4096, /* more: the oldest strike is forgotten */
};

struct strikes_host {
    char *name;
    int count;
    uint64_t last_ns, until_ns;
};

struct strikes {
    uint64_t least_ns, most_ns;
    struct strikes_host *hosts;
    size_t count, cap;
};

void strikes_init(struct strikes *s, int64_t least_ms, int64_t most_ms);
void strikes_fini(struct strikes *s);

/* Notes a failure.  `random`: any number.  Returns until when the host is not
 * used. */
uint64_t strikes_add(struct strikes *s, const char *name, uint64_t now_ns,
                     uint32_t random);
/* Returns until when the host is not used, or 0 if it may be used now. */
uint64_t strikes_until(const struct strikes *s, const char *name,
                       uint64_t now_ns);

#endif
