/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that will never agree, although each has called something: `disagree
 * CASE`.  After an allreduce by all ranks, the last rank differs from the
 * others, which call allreduce "a" and, in some cases, "b":
 *
 *     names     has another name
 *     blocking  makes a call without a name instead of one with a name
 *     mismatch  gives "a" another count, so "a" fails on all ranks; then the
 *               others wait for "b", while it makes a call without a name
 *     learned   has another name, after 50 rounds of a learned plan
 *     mixed     makes a call without a name instead of one with a name, after
 *               50 rounds of both kinds
 *     fewer     leaves out "b" and makes a call without a name
 *
 * Prints libhvd's error.  Exits 0 when all went well, 7 on HVD_ETIMEOUT, else
 * 1.
 */
#include "runtime/hvd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float x[8], y[8];
static int is_last;

static void check(int rc)
{
    if (rc == 0 || rc == -HVD_EMISMATCH)
        return;
    printf("rank %d: %s\n", hvd_rank(), hvd_error_message());
    exit(rc == -HVD_ETIMEOUT ? 7 : 1);
}

static hvd_request *begin(const char *name, size_t count)
{
    hvd_request *req = NULL;

    check(hvd_allreduce_async(name, x, y, count, HVD_FLOAT32, HVD_SUM, NULL,
                              &req));
    return req;
}

static void named(const char *name)
{
    check(hvd_wait(begin(name, 8)));
}

static void unnamed(void)
{
    check(hvd_allreduce(x, y, 8, HVD_FLOAT32, HVD_SUM, NULL));
}

static void names(void)
{
    named(is_last ? "b" : "a");
}

static void blocking(void)
{
    if (is_last)
        unnamed();
    else
        named("a");
}

static void mismatch(void)
{
    hvd_request *a = begin("a", is_last ? 7 : 8);
    hvd_request *b = is_last ? NULL : begin("b", 8);

    check(hvd_wait(a));
    if (b)
        check(hvd_wait(b));
    else
        unnamed();
}

static void learned(void)
{
    for (int i = 0; i < 50; i++) {
        hvd_request *a = begin("a", 8), *b = begin("b", 8);

        check(hvd_wait(a));
        check(hvd_wait(b));
    }
    names();
}

static void mixed(void)
{
    for (int i = 0; i < 50; i++) {
        named("a");
        unnamed();
    }
    blocking();
}

static void fewer(void)
{
    hvd_request *a = begin("a", 8), *b = is_last ? NULL : begin("b", 8);

    check(hvd_wait(a));
    if (b)
        check(hvd_wait(b));
    else
        unnamed();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*act)(void);
    } cases[] = {{"names", names},       {"blocking", blocking},
                 {"mismatch", mismatch}, {"learned", learned},
                 {"mixed", mixed},       {"fewer", fewer}};
    size_t at = 0, n = sizeof(cases) / sizeof(cases[0]);

    while (at < n && (argc != 2 || strcmp(argv[1], cases[at].name) != 0))
        at++;
    if (at == n || hvd_init() < 0)
        return 1;
    is_last = hvd_rank() == hvd_size() - 1;
    unnamed();
    cases[at].act();
    return hvd_shutdown() != 0;
}
