/* SPDX-License-Identifier: Apache-2.0 */
/* The program in memory; see pmix_image.h. */
#include "lib/agent/wireup/pmix/pmix_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* Since Linux 6.3: says that the memory is to be executed. */
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

/* Of pmix_image_bytes.S. */
extern const unsigned char pmix_image_begin[], pmix_image_end[];

static int make_memory(void)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("hvd-pmix", flags | MFD_EXEC);

    return fd < 0 && errno == EINVAL ? memfd_create("hvd-pmix", flags) : fd;
}

static int fill(int fd)
{
    const unsigned char *p = pmix_image_begin;

    while (p < pmix_image_end) {
        ssize_t n = write(fd, p, (size_t)(pmix_image_end - p));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        p += n;
    }
    return fcntl(fd, F_ADD_SEALS,
                 F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
}

int pmix_image_open(struct hb_error *err)
{
    int fd, e;

    if (&pmix_image_begin[0] == &pmix_image_end[0])
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "this build of hvdrun is without PMIx; install "
                            "libpmix-dev and build again, or use --mpi");
    fd = make_memory();
    if (fd < 0)
        return hb_error_sys(err, errno,
                            "cannot make memory for a program (see "
                            "vm.memfd_noexec in sysctl)");
    if (fill(fd) < 0) {
        e = errno;
        close(fd);
        return hb_error_sys(err, e, "cannot copy hvd-pmix to memory");
    }
    return fd;
}
