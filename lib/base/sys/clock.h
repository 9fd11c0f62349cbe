/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic and wall clocks, units in the names. */
#ifndef HB_CLOCK_H
#define HB_CLOCK_H

#include <stdint.h>

uint64_t hb_now_ns(void);  /* CLOCK_MONOTONIC */
uint64_t hb_wall_ns(void); /* CLOCK_REALTIME since 1970 */

/* Returns whether hb_now_ns() has reached until_ns (0: no limit). */
static inline int hb_is_over(uint64_t until_ns)
{
    return until_ns && hb_now_ns() >= until_ns;
}

/* Returns how long a sleep of at most max_ns may last that begins at now_ns and
 * must not go beyond until_ns (0: no limit), both on hb_now_ns's clock. */
static inline uint64_t hb_sleep_ns(uint64_t max_ns, uint64_t now_ns,
                                   uint64_t until_ns)
{
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;

    return until_ns && left_ns < max_ns ? left_ns : max_ns;
}

#endif
