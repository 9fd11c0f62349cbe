/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic and wall clocks, units in the names. */
#ifndef HB_CLOCK_H
#define HB_CLOCK_H

#include <stdint.h>

uint64_t hb_now_ns(void);  /* CLOCK_MONOTONIC */
uint64_t hb_wall_ns(void); /* CLOCK_REALTIME since 1970 */

#endif
