/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes rank 1 keep the others waiting: `stall_rank VERB [joined]`.  All ranks
 * do an allreduce "grad.6".  All but rank 1 then do another one, "grad.7"; with
 * "joined", rank 2 calls hvd_join instead.  What rank 1 does:
 *
 *     never   sleeps, in a function of that name
 *     stop    stops itself
 *     spin    loops for ever
 *     late    waits for the file "go", then does "grad.7"; then all leave
 *     slow    begins QUEUE more operations, one every 100 ms; the others begin
 *             these at once, and do no "grad.7"
 *
 * Exits 0 when all went well, 7 on HVD_ETIMEOUT, else 1.
 */
#include "runtime/hvd.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { QUEUE = 15 };

static int rank;

static int reduce(const char *name)
{
    float x = 1;
    hvd_request *req = NULL;
    int rc =
        hvd_allreduce_async(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &req);

    if (rc == 0)
        rc = hvd_wait(req);
    if (rc == 0)
        return 0;
    printf("rank %d: %s: %s\n", rank, hvd_status_text(rc), hvd_error_message());
    fflush(stdout);
    return rc == -HVD_ETIMEOUT ? 7 : 1;
}

static int never(void)
{
    while (pause() < 0)
        ;
    return 1;
}

static int stop(void)
{
    raise(SIGSTOP);
    return never();
}

static int spin(void)
{
    volatile int on = 1;

    while (on)
        ;
    return 1;
}

static int late(void)
{
    while (access("go", F_OK) != 0)
        usleep(20000);
    return reduce("grad.7");
}

static int join(void)
{
    int rc = hvd_join(NULL, NULL);

    return rc == -HVD_ETIMEOUT ? 7 : rc != 0;
}

static int slow(void)
{
    hvd_request *reqs[QUEUE];
    float x[QUEUE] = {0};
    char name[16];
    int rc = 0, failed = 0;

    for (int i = 0; i < QUEUE; i++) {
        if (rank == 1)
            usleep(100000);
        snprintf(name, sizeof(name), "slow.%d", i);
        rc = hvd_allreduce_async(name, &x[i], &x[i], 1, HVD_FLOAT32, HVD_SUM,
                                 NULL, &reqs[i]);
        if (rc < 0)
            return 1;
    }
    for (int i = 0; i < QUEUE; i++)
        failed |= hvd_wait(reqs[i]) < 0;
    hvd_shutdown();
    return failed;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*act)(void);
    } verbs[] = {
        {"never", never}, {"stop", stop}, {"spin", spin}, {"late", late}};
    int joined = argc == 3 && strcmp(argv[2], "joined") == 0, rc;

    if (argc != 2 + joined || hvd_init() < 0)
        return 1;
    rank = hvd_rank();
    rc = reduce("grad.6");
    if (strcmp(argv[1], "slow") == 0)
        return slow();
    for (size_t i = 0; rank == 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].act();
    if (rc == 0)
        rc = joined && rank == 2 ? join() : reduce("grad.7");
    hvd_shutdown();
    return rc;
}
