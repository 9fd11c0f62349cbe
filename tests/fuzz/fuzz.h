/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzzers share.  A fuzzer is an LLVMFuzzerTestOneInput that aborts if a
 * property of its parser does not hold.  libFuzzer calls it with inputs that it
 * makes up, replay.c with the files of a corpus.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "lib/base/error.h"
#include "lib/base/text.h"

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

/* Checks that a text cannot drive a terminal: hb_text_sanitize changes
 * nothing. */
static inline void fuzz_check_text(const char *text)
{
    char *copy = strdup(text), *line, *rest = copy;

    FUZZ_CHECK(copy);
    while ((line = strsep(&rest, "\n"))) {
        char *clean = strdup(line);

        FUZZ_CHECK(clean);
        hb_text_sanitize(clean);
        FUZZ_CHECK(strcmp(line, clean) == 0);
        free(clean);
    }
    free(copy);
}

/* Checks that err is set if and only if rc is its status, with a one-line
 * text. */
static inline void fuzz_check_error(int rc, const struct hb_error *err)
{

    FUZZ_CHECK(err->status == (rc < 0 ? rc : 0));
    FUZZ_CHECK((err->text[0] != '\0') == (rc < 0));
    FUZZ_CHECK(strlen(err->text) < sizeof(err->text));
    FUZZ_CHECK(!strchr(err->text, '\n'));
    fuzz_check_text(err->text);
}

/* The rest of an input whose bytes decide what a fuzzer does. */
struct fuzz_input {
    const uint8_t *p, *end;
};

/* Takes the next byte of in; 0 if none is left. */
static inline unsigned fuzz_take(struct fuzz_input *in)
{
    return in->p < in->end ? *in->p++ : 0;
}

/* Takes from in as many bytes as its next byte says, or all if that is 255 or
 * more than are left.  Returns them, still in the input's memory. */
static inline const void *fuzz_take_bytes(struct fuzz_input *in, size_t *len)
{
    const void *bytes;

    *len = fuzz_take(in);
    if (*len > (size_t)(in->end - in->p) || *len == UINT8_MAX)
        *len = (size_t)(in->end - in->p);
    bytes = in->p;
    in->p += *len;
    return bytes;
}

/* Copies to the heap exactly size bytes, so that a read past them is
 * noticed. */
static inline char *fuzz_copy(const void *data, size_t size)
{
    char *copy = malloc(size ? size : 1);

    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

/* Copies to the heap as a string, cut at the first 0. */
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
