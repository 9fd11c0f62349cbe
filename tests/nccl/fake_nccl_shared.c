/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of NCCL: the memory that ranks share; see fake_nccl.h.
 *
 * It is an anonymous file.  Its maker keeps it open until all ranks have mapped
 * it; the others open it through /proc.
 */
#include "tests/nccl/fake_nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void fake_shared_make(char text[64], int *fd)
{
    struct fake_shared *shared;
    uint64_t cookie = 0;

    *fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, sizeof(*shared)) < 0 ||
        getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
        fake_misuse("no memory for the ranks of the double of NCCL");
    snprintf(text, 64, "fake-nccl %d %d %016llx", (int)getpid(), *fd,
             (unsigned long long)cookie);
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (shared == MAP_FAILED)
        fake_misuse("no addresses for the double of NCCL");
    shared->cookie = cookie;
    munmap(shared, sizeof(*shared));
}

struct fake_shared *fake_shared_map(const char *text)
{
    struct fake_shared *shared;
    unsigned long long cookie;
    char path[64];
    int pid, number, fd;

    if (sscanf(text, "fake-nccl %d %d %llx", &pid, &number, &cookie) != 3)
        fake_misuse("this is no id of ncclGetUniqueId: '%.40s'", text);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED)
        fake_misuse("no addresses for the double of NCCL");
    if (shared->cookie == cookie)
        return shared;
    munmap(shared, sizeof(*shared));
    return NULL;
}

void fake_shared_unmap(struct fake_shared *shared)
{
    if (shared)
        munmap(shared, sizeof(*shared));
}

void fake_ring(struct fake_shared *shared)
{
    atomic_fetch_add(&shared->bell, 1);
    syscall(SYS_futex, &shared->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int fake_await(struct fake_shared *shared, unsigned bell,
               const atomic_int *quit)
{
    struct timespec most = {.tv_nsec = 5000000};

    if (atomic_load(quit))
        return -1;
    syscall(SYS_futex, &shared->bell, FUTEX_WAIT, bell, &most, NULL, 0);
    return atomic_load(quit) ? -1 : 0;
}
