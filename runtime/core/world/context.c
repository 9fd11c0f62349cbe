/* SPDX-License-Identifier: Apache-2.0 */
/* The context, and the page that a fork wipes; see context.h. */
#include "runtime/core/world/context.h"

#include <errno.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };

struct hvd__context hvd__context = {.memory = HVD__ARENA_INIT};

int hvd__context_map(struct hb_error *err)
{
    void *page;

    if (hvd__context.page)
        return 0;
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return hb_error_sys(err, errno, "map a page");
    /* If the kernel cannot, a forked child is not detected. */
    madvise(page, PAGE_BYTES, MADV_WIPEONFORK);
    atomic_store(&hvd__context.page, (struct hvd__page *)page);
    return 0;
}
