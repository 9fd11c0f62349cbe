/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a rank's stderr: parts are whole lines of the text, in order.  A
 * traceback between lines that have none, and that connect it with none, is
 * found whole.
 */
#include "lib/job/output/tail_view.h"
#include "tests/fuzz/fuzz.h"

static const char traceback[] = "Traceback (most recent call last):\n"
                                "  File \"x.py\", line 1, in f\n"
                                "    g()\n"
                                "E: message\n";

static void check_part(const char *text, const char *part, size_t len)
{
    const char *end = text + strlen(text);

    if (len == 0)
        return;
    FUZZ_CHECK(part >= text && part + len <= end);
    FUZZ_CHECK(part == text || part[-1] == '\n' || part[-1] == '\r');
    FUZZ_CHECK(part + len == end || part[len] == '\n' || part[len] == '\r');
}

static int lines_of(const char *part, size_t len)
{
    int lines = len > 0;

    for (size_t i = 0; i < len; i++)
        lines += part[i] == '\n';
    return lines;
}

static void check(const char *text)
{
    struct tail_view v = tail_view(text);

    check_part(text, v.text, v.len);
    check_part(text, v.after, v.after_len);
    FUZZ_CHECK((v.kind == TAIL_NOTHING) ==
               (strspn(text, "\r\n") == strlen(text)));
    if (v.after_len)
        FUZZ_CHECK(v.after >= v.text + v.len);
    FUZZ_CHECK(lines_of(v.after, v.after_len) <= TAIL_AFTER_MAX);
    if (v.kind == TAIL_LINES) {
        FUZZ_CHECK(lines_of(v.text, v.len) <= TAIL_LINES_MAX);
        FUZZ_CHECK(v.after_len == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *noise = fuzz_string(data, size), *text;
    size_t before = size ? strlen(noise) * data[0] / 255 : 0;
    struct tail_view v;

    check(noise);
    if (strstr(noise, "Traceback") || strstr(noise, "ignored") ||
        strstr(noise, "above exception")) {
        free(noise);
        return 0;
    }
    text = malloc(strlen(noise) + sizeof(traceback) + 2);
    FUZZ_CHECK(text);
    memcpy(text, noise, before);
    snprintf(text + before, strlen(noise) - before + sizeof(traceback) + 2,
             "\n%s\n%s", traceback, noise + before);
    check(text);
    v = tail_view(text);
    FUZZ_CHECK(v.kind == TAIL_TRACEBACK);
    FUZZ_CHECK(v.len == sizeof(traceback) - 2);
    FUZZ_CHECK(memcmp(v.text, traceback, v.len) == 0);
    free(text);
    free(noise);
    return 0;
}
