/* SPDX-License-Identifier: Apache-2.0 */
/* The arena behind hvd_alloc (plane/arena.h); hvd_init gives it its memory. */
#ifndef HVD_CORE_MEMORY_H
#define HVD_CORE_MEMORY_H

#include "runtime/plane/shm/arena.h"

extern struct hvd__arena hvd__memory;

#endif
