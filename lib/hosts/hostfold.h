/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds many host names into one short text: node01 node02 node03 login becomes
 * "login,node[01-03]", which hostlist_parse reads back.  Pure.
 *
 * Names fold if they differ in one number only: the last one of the first label
 * (node07.rack2.lan), or of the whole for an IPv4 address.  Numbers with
 * leading zeros fold only with those of equal width.
 */
#ifndef HVD_HOSTS_HOSTFOLD_H
#define HVD_HOSTS_HOSTFOLD_H

#include <stddef.h>

/* Returns a heap string (hb_free), "" if count is 0; repeated names appear
 * once.  Ends the process if out of memory. */
char *hostfold(const char *const *names, size_t count);

#endif
