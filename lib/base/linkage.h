/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How this program was linked.  A static one (make STATIC=1) runs where there
 * is nothing but a kernel, and loads no shared object: one that was made for
 * another C library would crash it.  linkage_static.c, linked before the
 * archive, says so in place of linkage.c.
 */
#ifndef HVD_BASE_LINKAGE_H
#define HVD_BASE_LINKAGE_H

#include "lib/base/error.h"

/* 0; or -HVD_EUNSUPPORTED with err set, in a static program: it must not call
 * dlopen. */
int hb_may_load(struct hb_error *err);

#endif
