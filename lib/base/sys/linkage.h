/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How this program was linked.  A static one (make STATIC=1) runs on a bare
 * kernel and must not load shared objects: one made for another C library would
 * crash it.  linkage_static.c, linked before the archive, replaces linkage.c
 * there.
 */
#ifndef HVD_BASE_LINKAGE_H
#define HVD_BASE_LINKAGE_H

#include "lib/base/error.h"

/* Returns 0, or -HVD_EUNSUPPORTED with err set in a static program, which must
 * not call dlopen. */
int hb_may_load(struct hb_error *err);

#endif
