/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program hvd-pmix, which the agent carries in itself: a host then needs no
 * file but the agent's.  It is empty in a build without PMIx.
 */
#ifndef HVD_AGENT_WIREUP_PMIX_IMAGE_H
#define HVD_AGENT_WIREUP_PMIX_IMAGE_H

#include "lib/base/error.h"

/* Returns a descriptor, close-on-exec, of which the program can be executed; or
 * negative with err set. */
int pmix_image_open(struct hb_error *err);

#endif
