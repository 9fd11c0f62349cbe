/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks of the system tests say what they have found. */
#ifndef TESTS_SYSTEM_RANK_CHECKS_H
#define TESTS_SYSTEM_RANK_CHECKS_H

#include "runtime/hvd.h"

#include <stdio.h>
#include <stdlib.h>

/* Ends the rank with exit code 1 and a line on stderr unless `ok`. */
static void check(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rank %d: wrong: %s (%s)\n", hvd_rank(), what,
            hvd_error_message());
    exit(1);
}

/* Prints a status, with the message of a failure. */
static void tell(int status)
{
    printf("rank %d: %s: %s\n", hvd_rank(), hvd_status_text(status),
           status ? hvd_error_message() : "");
    fflush(stdout);
}

#endif
