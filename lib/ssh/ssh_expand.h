/* SPDX-License-Identifier: Apache-2.0 */
/* "~" and the % tokens of ssh_config(5), which `ssh -G` does not replace. */
#ifndef HVD_TRANSPORT_SSH_EXPAND_H
#define HVD_TRANSPORT_SSH_EXPAND_H

#include "lib/ssh/ssh_config.h"

/* Replaces the tokens in the heap string *value; if is_file, also "~", and then
 * ${NAME} is not allowed.  0; -HVD_ENOENT for a token that is not supported;
 * -HVD_ENOMEM. */
int ssh_expand(const struct ssh_config *c, const struct ssh_user *u,
               int is_file, char **value);

#endif
