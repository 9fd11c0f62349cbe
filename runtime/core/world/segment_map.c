/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the shared segment; see segment_map.h. */
#include "runtime/core/world/segment_map.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

int hvd__segment_map(int fd, uint32_t epoch, uint32_t local_size,
                     uint64_t bytes, struct segment_head **head,
                     struct hb_error *err)
{
    struct stat st;
    void *p;

    if (fstat(fd, &st) < 0)
        return hb_error_sys(err, errno, "look at the shared segment");
    if ((uint64_t)st.st_size < bytes)
        return hb_error_set(
            err, HVD_EPROTO,
            "shared memory: the segment has %lld bytes, not %llu",
            (long long)st.st_size, (unsigned long long)bytes);
    /* No reserve: most of it is never touched. */
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
             fd, 0);
    if (p == MAP_FAILED)
        return hb_error_sys(err, errno, "map %llu bytes of shared memory",
                            (unsigned long long)bytes);
    /* A forked child must not have it. */
    madvise(p, bytes, MADV_DONTFORK);
    madvise(p, bytes, MADV_DONTDUMP);
    if (segment_head_check(p, epoch, local_size, bytes) < 0) {
        munmap(p, bytes);
        return hb_error_set(err, HVD_EPROTO,
                            "shared memory: the segment's head is not ours");
    }
    *head = p;
    return 0;
}
