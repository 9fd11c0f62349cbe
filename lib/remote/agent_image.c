/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent as bytes to be sent; see agent_image.h. */
#include "lib/remote/agent_image.h"

#include "lib/base/alloc.h"
#include "lib/protocol/agent_hash.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns a pattern for `uname -m` on kernels that run this kind of program.
 * If it is not ELF, any: the host will refuse it. */
static const char *cpu_of(const char *bytes, size_t len)
{
    static const struct {
        unsigned machine, class;
        const char *cpu;
    } kinds[] = {
        {EM_X86_64, ELFCLASS64, "x86_64|amd64"},
        {EM_386, ELFCLASS32, "i?86|x86_64|amd64"},
        {EM_AARCH64, ELFCLASS64, "aarch64|arm64"},
        {EM_ARM, ELFCLASS32, "arm*|aarch64"},
        {EM_PPC64, ELFCLASS64, "ppc64*"},
        {EM_S390, ELFCLASS64, "s390x"},
        {EM_RISCV, ELFCLASS64, "riscv64"},
        {EM_LOONGARCH, ELFCLASS64, "loongarch64"},
    };
    const unsigned char *p = (const unsigned char *)bytes;
    unsigned machine;
    int msb;

    if (len < sizeof(Elf32_Ehdr) || memcmp(p, ELFMAG, SELFMAG) != 0)
        return "*";
    msb = p[EI_DATA] == ELFDATA2MSB;
    machine = p[msb ? 18 : 19] * 256u + p[msb ? 19 : 18];
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].machine == machine && kinds[i].class == p[EI_CLASS])
            return kinds[i].cpu;
    return "*";
}

static int read_all(int fd, char *bytes, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = read(fd, bytes + done, len - done);
        if (n == 0)
            return EIO; /* it has shrunk meanwhile */
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* Reads the file: 0 or an errno. */
static int image_load(int fd, struct agent_image *image)
{
    struct stat st;
    int rc;

    if (fstat(fd, &st) < 0)
        return errno;
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return ENOEXEC;
    if (st.st_size > AGENT_IMAGE_MAX)
        return EFBIG;
    image->len = (size_t)st.st_size;
    image->bytes = hb_xmalloc(image->len);
    rc = read_all(fd, image->bytes, image->len);
    if (rc)
        agent_image_free(image);
    return rc;
}

int agent_image_read(const char *path, struct agent_image *out,
                     struct hb_error *err)
{
    struct agent_image image = AGENT_IMAGE_INIT;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? errno : image_load(fd, &image);

    if (fd >= 0)
        close(fd);
    if (rc)
        return hb_error_sys(err, rc, "cannot read the agent %s", path);
    agent_hash(image.bytes, image.len, image.hash);
    image.cpu = cpu_of(image.bytes, image.len);
    *out = image;
    return 0;
}

void agent_image_free(struct agent_image *image)
{
    hb_free(image->bytes);
    image->bytes = NULL;
    image->len = 0;
}
