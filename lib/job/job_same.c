/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several names of one host: only the agents can tell, so this is known when
 * all of them have sent HELLO.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

void job_same_hello(struct job_host *host, const struct control_hello *m)
{
    /* Virtual machines resumed from one snapshot of memory differ in their host
     * name only. */
    if (m->machine[0] && m->namespaces[0])
        host->identity =
            hb_xasprintf("%s %s %s", m->machine, m->namespaces, m->host);
}

/* Orders hosts by identity, then by index. */
static int compare(const void *pa, const void *pb)
{
    const struct job_host *a = *(const struct job_host *const *)pa;
    const struct job_host *b = *(const struct job_host *const *)pb;
    int order = strcmp(a->identity, b->identity);

    return order ? order : a->index - b->index;
}

int job_same_found(const struct job *job)
{
    int total = job->config->plan->host_count, known = 0, found = 0;
    int *same_as = job->config->same_as;
    const struct job_host **hosts;

    if (!same_as)
        return 0;
    hosts = hb_xcalloc((size_t)total, sizeof(struct job_host *));
    for (int i = 0; i < total; i++) {
        same_as[i] = i;
        if (job->hosts[i].identity)
            hosts[known++] = &job->hosts[i];
    }
    qsort(hosts, (size_t)known, sizeof(struct job_host *), compare);
    for (int i = 1; i < known; i++)
        if (strcmp(hosts[i - 1]->identity, hosts[i]->identity) == 0) {
            same_as[hosts[i]->index] = same_as[hosts[i - 1]->index];
            found = 1;
        }
    hb_free(hosts);
    return found;
}
