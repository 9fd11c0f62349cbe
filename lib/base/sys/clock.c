/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks; see clock.h.  Neither clock can fail on Linux. */
#include "lib/base/sys/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t hb_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t hb_wall_ns(void)
{
    return read_ns(CLOCK_REALTIME);
}
