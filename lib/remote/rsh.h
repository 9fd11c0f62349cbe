/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The --rsh template: words for a command that runs /bin/sh on a host. Pure.
 *
 *     kubectl exec -i {host} --       ssh -p {port} -l {user} {host}
 *
 * Words are split as by a shell: at blanks, with '...', "..." and backslash;
 * but no shell is run, and $ and ` mean nothing.  {host}, {user} and {port} are
 * replaced inside words after the splitting.  Without {host} the host is
 * appended; /bin/sh is always appended.
 */
#ifndef HVD_REMOTE_RSH_H
#define HVD_REMOTE_RSH_H

#include "lib/base/error.h"
#include "lib/base/strv.h"

/* Appends the words of a text, split as above; there may be none.  0,
 * -HVD_EINVAL (a quote is not closed) or -HVD_ENOMEM. */
int rsh_split(const char *text, struct hb_strv *words, struct hb_error *err);

/* Parses a template: as rsh_split, but at least one word, and errors name
 * --rsh. */
int rsh_parse(const char *template, struct hb_strv *words,
              struct hb_error *err);

/* Appends the command for a host to argv.  0, -HVD_ENOMEM, or -HVD_EINVAL for a
 * host or user that could be taken for an option. */
int rsh_argv(const struct hb_strv *words, const char *host, const char *user,
             int port, struct hb_strv *argv, struct hb_error *err);

#endif
