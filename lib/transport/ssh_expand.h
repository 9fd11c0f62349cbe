/* SPDX-License-Identifier: Apache-2.0 */
/* "~" and the % tokens of ssh_config(5), which `ssh -G` leaves as they
 * were written. */
#ifndef HVD_TRANSPORT_SSH_EXPAND_H
#define HVD_TRANSPORT_SSH_EXPAND_H

#include "lib/transport/ssh_config.h"

/* Replaces them in the heap string *value.  In a file's name also "~", and
 * then ${NAME} is not known.  0; -HVD_ENOENT for what is not known here;
 * -HVD_ENOMEM. */
int ssh_expand(const struct ssh_config *c, const struct ssh_user *u,
               int is_file, char **value);

#endif
