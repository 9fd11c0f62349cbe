/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that tell which MPI a program uses.  The first byte chooses:
 *
 * 0: an ELF file: each name that is read is a string in the file, and within
 *    its limit.
 * 1: the loader's cache: the path that is found is in it, and ends in it; the
 *    same bytes behind a table of the older format give the same path.
 * 2: pyvenv.cfg and a Python script: a setting after the one, and a statement
 *    before or after the other, is found.
 */
#include "lib/agent/machine/ld_cache.h"
#include "lib/agent/wireup/elf_file.h"
#include "lib/agent/wireup/python_mpi.h"
#include "lib/base/alloc.h"
#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

static void check_string(const uint8_t *data, size_t size, const char *text,
                         size_t max)
{
    size_t len = strlen(text) + 1; /* with the 0 */

    FUZZ_CHECK(len <= max);
    FUZZ_CHECK(memmem(data, size, text, len));
}

static void check_elf(const uint8_t *data, size_t size)
{
    int fd = memfd_create("elf", MFD_CLOEXEC);
    struct elf_file f;

    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    if (elf_file_read(fd, &f)) {
        FUZZ_CHECK(size >= 64 && memcmp(data, "\177ELF\2\1", 6) == 0);
        FUZZ_CHECK(f.needed.count <= ELF_NEEDED_MAX);
        for (size_t i = 0; i < f.needed.count; i++)
            check_string(data, size, f.needed.items[i], ELF_NAME_BYTES_MAX);
        if (f.rpath)
            check_string(data, size, f.rpath, ELF_PATHS_BYTES_MAX);
        if (f.runpath)
            check_string(data, size, f.runpath, ELF_PATHS_BYTES_MAX);
        elf_file_fini(&f);
    }
    close(fd);
}

static int any(const char *library, const char *name)
{
    return strstr(library, name) != NULL;
}

/* Puts the bytes behind a table of the older format without entries. */
static void set_old(struct ld_cache *c, const uint8_t *data, size_t size)
{
    static const char old[16] = "ld.so-1.7.0";
    char *bytes = hb_xmalloc(sizeof(old) + size + 1);

    memcpy(bytes, old, sizeof(old));
    if (size)
        memcpy(bytes + sizeof(old), data, size);
    ld_cache_set(c, bytes, sizeof(old) + size);
}

static void check_cache(const uint8_t *data, size_t size)
{
    char *bytes = hb_xmalloc(size + 1);
    struct ld_cache c, old;
    const char *path, *same;

    if (size)
        memcpy(bytes, data, size);
    ld_cache_set(&c, bytes, size);
    path = ld_cache_find(&c, any, "libmpi");
    if (path) {
        FUZZ_CHECK(path >= c.bytes && path < c.bytes + c.len);
        FUZZ_CHECK(strlen(path) <= (size_t)(c.bytes + c.len - path));
        FUZZ_CHECK(memmem(data, size, "libmpi", 6));
    }
    if (size < 11 || memcmp(data, "ld.so-1.7.0", 11) != 0) {
        set_old(&old, data, size);
        same = ld_cache_find(&old, any, "libmpi");
        FUZZ_CHECK(!path == !same);
        FUZZ_CHECK(!path || strcmp(path, same) == 0);
        ld_cache_fini(&old);
    }
    ld_cache_fini(&c);
}

static void check_imports(const char *text, size_t len)
{
    static const char statement[] = "\nfrom mpi4py import MPI\n";
    const size_t more = sizeof(statement) - 1;
    char *longer = hb_xmalloc(len + more);

    FUZZ_CHECK(!python_imports_mpi(text, len) ||
               memmem(text, len, "mpi4py", 6));
    memcpy(longer, statement, more);
    if (len)
        memcpy(longer + more, text, len);
    FUZZ_CHECK(python_imports_mpi(longer, len + more));
    if (len)
        memcpy(longer, text, len);
    memcpy(longer + len, statement, more);
    FUZZ_CHECK(python_imports_mpi(longer, len + more));
    hb_free(longer);
}

static void check_python(const uint8_t *data, size_t size)
{
    char *exact = fuzz_copy(data, size), *text = fuzz_string(data, size);
    char *more;
    int uses = python_venv_uses_system(text);

    FUZZ_CHECK(uses || strcasestr(text, "include-system-site-packages"));
    more = hb_xasprintf("%s\ninclude-system-site-packages=%s\n", text,
                        uses ? "false" : "True");
    FUZZ_CHECK(python_venv_uses_system(more) == !uses);
    check_imports(exact, size);
    hb_free(more);
    free(text);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const checks[])(const uint8_t *, size_t) = {
        check_elf, check_cache, check_python};

    if (size > 0)
        checks[data[0] % 3](data + 1, size - 1);
    return 0;
}
