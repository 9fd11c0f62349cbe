/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzzers share.  A fuzzer is a LLVMFuzzerTestOneInput that aborts
 * when a property of its parser does not hold; libFuzzer calls it with
 * what it makes up, replay.c with the files of a corpus.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "lib/base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(ok) ((ok) ? (void)0 : fuzz_broken(#ok, __FILE__, __LINE__))

static inline _Noreturn void fuzz_broken(const char *what, const char *file,
                                         int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

/* A status and its error belong together; a text is one clean line. */
static inline void fuzz_check_error(int rc, const struct hb_error *err)
{
    const unsigned char *p;

    FUZZ_CHECK(err->status == (rc < 0 ? rc : 0));
    FUZZ_CHECK((err->text[0] != '\0') == (rc < 0));
    FUZZ_CHECK(strlen(err->text) < sizeof(err->text));
    for (p = (const unsigned char *)err->text; *p; p++)
        FUZZ_CHECK(*p >= 0x20 && *p != 0x7f);
}

/* A heap copy of exactly size bytes, so that a read past them shows. */
static inline char *fuzz_copy(const void *data, size_t size)
{
    char *copy = malloc(size ? size : 1);

    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

/* The same as a string, cut at the first 0. */
static inline char *fuzz_string(const void *data, size_t size)
{
    char *copy = malloc(size + 1);

    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

#endif
