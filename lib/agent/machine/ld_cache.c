/* SPDX-License-Identifier: Apache-2.0 */
/* The loader's cache; see ld_cache.h. */
#include "lib/agent/machine/ld_cache.h"

#include "lib/base/alloc.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* glibc's sysdeps/generic/dl-cache.h, the format since 2.2; offsets are
 * from the beginning of the header. */
struct cache_head {
    char magic[20];
    uint32_t count, strings_bytes;
    uint32_t unused[5];
};

struct cache_entry {
    int32_t flags;
    uint32_t key, value, os_version;
    uint64_t hwcap;
};

static const char magic[20] = "glibc-ld.so.cache1.1";

/* Before glibc 2.32 a table of an older format comes first. */
struct old_head {
    char magic[12]; /* 11, and one of padding */
    uint32_t count;
};

static const char old_magic[11] = "ld.so-1.7.0";

enum {
    CACHE_BYTES_MAX = 64 << 20,
    OLD_ENTRY_BYTES = 12,
    HEAD_ALIGN = 8,
    ARCH_MASK = 0xff00,
#if defined(__x86_64__)
    ARCH = 0x0300,
#elif defined(__aarch64__)
    ARCH = 0x0a00,
#else
    ARCH = -1,
#endif
};

/* Returns where the header of the format that is read begins. */
static size_t head_offset(const struct ld_cache *c)
{
    struct old_head old;
    uint64_t end;

    if (c->len < sizeof(old))
        return 0;
    memcpy(&old, c->bytes, sizeof(old));
    if (memcmp(old.magic, old_magic, sizeof(old_magic)) != 0)
        return 0;
    end = sizeof(old) + (uint64_t)old.count * OLD_ENTRY_BYTES;
    end = (end + HEAD_ALIGN - 1) / HEAD_ALIGN * HEAD_ALIGN;
    return end < c->len ? (size_t)end : c->len;
}

void ld_cache_set(struct ld_cache *c, char *bytes, size_t len)
{
    bytes[len] = '\0';
    c->bytes = bytes;
    c->len = len;
}

void ld_cache_read(const char *root, struct ld_cache *c)
{
    char *path = hb_xasprintf("%s/etc/ld.so.cache", root), *bytes;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    size_t len = 0;

    hb_free(path);
    *c = (struct ld_cache){NULL, 0};
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
        st.st_size < CACHE_BYTES_MAX) {
        bytes = hb_xmalloc((size_t)st.st_size + 1);
        while (len < (size_t)st.st_size) {
            ssize_t n = read(fd, bytes + len, (size_t)st.st_size - len);

            if (n <= 0)
                break;
            len += (size_t)n;
        }
        ld_cache_set(c, bytes, len);
    }
    close(fd);
}

void ld_cache_fini(struct ld_cache *c)
{
    hb_free(c->bytes);
    *c = (struct ld_cache){NULL, 0};
}

const char *ld_cache_find(const struct ld_cache *c,
                          int (*matches)(const char *library, const char *name),
                          const char *name)
{
    size_t offset = head_offset(c), at = sizeof(struct cache_head);
    const char *base = c->bytes ? c->bytes + offset : NULL;
    size_t len = c->len - offset;
    struct cache_head head;
    struct cache_entry e;

    if (!base || len < sizeof(head))
        return NULL;
    memcpy(&head, base, sizeof(head));
    if (memcmp(head.magic, magic, sizeof(magic)) != 0)
        return NULL;
    for (uint32_t i = 0; i < head.count; i++, at += sizeof(e)) {
        if (len - at < sizeof(e))
            break;
        memcpy(&e, base + at, sizeof(e));
        if (e.key >= len || e.value >= len ||
            (ARCH >= 0 && (e.flags & ARCH_MASK) != ARCH))
            continue;
        if (matches(base + e.key, name))
            return base + e.value;
    }
    return NULL;
}
