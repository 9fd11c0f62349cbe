/* SPDX-License-Identifier: Apache-2.0 */
/* The arena that hvd_alloc hands out (plane/arena.h); hvd_init gives it its
 * memory. */
#ifndef HVD_CORE_MEMORY_H
#define HVD_CORE_MEMORY_H

#include "runtime/plane/arena.h"

extern struct hvd__arena hvd__memory;

#endif
