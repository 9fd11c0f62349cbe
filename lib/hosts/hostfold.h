/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many host names as one short text: node01 node02 node03 login becomes
 * "login,node[01-03]".  The inverse of what hostlist_parse reads: it gives
 * the same names back.  Pure.
 *
 * Names fold when they differ in one number only: the last one of the
 * first label (node07.rack2.lan), or of the whole for an IPv4 address.
 * Numbers with leading zeros fold with those of their width.
 */
#ifndef HVD_HOSTS_HOSTFOLD_H
#define HVD_HOSTS_HOSTFOLD_H

#include <stddef.h>

/* A heap string (hb_free), "" for none; names given twice appear once.
 * Ends the process when memory runs out. */
char *hostfold(const char *const *names, size_t count);

#endif
