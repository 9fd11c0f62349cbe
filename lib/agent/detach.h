/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets the program run without its file.
 *
 * On a network file system the file of a running program may disappear: when
 * one of several hosts with the same home directory replaces or removes it, the
 * next page read from it ends the program with SIGBUS.
 */
#ifndef HVD_AGENT_DETACH_H
#define HVD_AGENT_DETACH_H

/* Copies the pages of the program's file into private memory.  `always`: also
 * if the file is on a local file system, where a running program's file stays
 * readable.  0, or -1 with errno if the system does not allow that; then
 * nothing has changed. */
int detach_from_file(int always);

#endif
