/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed shared memory; see segment_fd.h. */
#include "lib/protocol/segment_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

/* Makes the memfd, with MFD_NOEXEC_SEAL where the kernel knows it, because it
 * may insist on it. */
static int make(void)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("hvd", flags | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("hvd", flags);
    return fd;
}

int segment_fd_make(uint32_t epoch, uint32_t local_size, uint64_t bytes,
                    int *fd, struct segment_head **head, struct hb_error *err)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    uint64_t head_bytes = segment_head_bytes(local_size);
    void *map = MAP_FAILED;
    int f, e;

    if (bytes < head_bytes || bytes >> SEGMENT_FD_SHIFT_MAX)
        return hb_error_set(err, HVD_EINVAL,
                            "a shared segment of %llu bytes is not possible",
                            (unsigned long long)bytes);
    f = make();
    if (f < 0)
        return hb_error_sys(err, errno, "shared segment");
    if (ftruncate(f, (off_t)bytes) == 0 && fcntl(f, F_ADD_SEALS, seals) == 0)
        map = mmap(NULL, head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (map == MAP_FAILED) {
        e = errno;
        close(f);
        return hb_error_sys(err, e, "shared segment of %llu bytes",
                            (unsigned long long)bytes);
    }
    segment_head_init(map, epoch, local_size, bytes);
    *fd = f;
    *head = map;
    return 0;
}

void segment_fd_unmap(struct segment_head *head, uint32_t local_size)
{
    if (head)
        munmap(head, segment_head_bytes(local_size));
}
