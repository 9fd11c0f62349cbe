/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that runs gather_alloc_cases: `gather_alloc TIMES`.  The exit code is
 * 0 when the checks hold, 1 when they do not, 99 on misuse.
 */
#include "tests/system/prog/gather_alloc_cases.h"

#include "lib/base/env.h"
#include "runtime/hvd.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct hb_error err = HB_ERROR_INIT;
    int64_t times;

    if (argc != 2 || hb_parse_i64(argv[1], 0, INT32_MAX, &times, &err) < 0) {
        fprintf(stderr, "usage: gather_alloc TIMES\n");
        return 99;
    }
    if (hvd_init() < 0) {
        fprintf(stderr, "gather_alloc: %s\n", hvd_error_message());
        return 1;
    }
    if (gather_alloc_cases((int)times))
        return 1;
    return hvd_shutdown() == 0 ? 0 : 1;
}
