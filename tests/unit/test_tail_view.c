/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/output/tail_view.h: what the last words of a rank show of its
 * failure. */
#include "lib/job/output/tail_view.h"
#include "tests/unit/unit.h"

#include <string.h>

#define HEADER "Traceback (most recent call last):\n"
#define FRAME \
    "  File \"/a b.py\", line 3, in f\n    return g(x)\n           ^^^^\n"

static void is_text(const char *p, size_t len, const char *want)
{
    char *got = strndup(p ? p : "", len);

    ck_assert_str_eq(got, want);
    free(got);
}

static void shows(const char *text, enum tail_kind kind, const char *part,
                  const char *after, int gap)
{
    struct tail_view v = tail_view(text);

    ck_assert_msg(v.kind == kind, "%d: %s", v.kind, text);
    is_text(v.text, v.len, part);
    is_text(v.after, v.after_len, after);
    ck_assert_int_eq(v.gap, gap);
}

START_TEST(lines)
{
    shows("", TAIL_NOTHING, "", "", 0);
    shows("\r\n\n", TAIL_NOTHING, "", "", 0);
    shows("a\nb\n", TAIL_LINES, "a\nb", "", 0);
    shows("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\na\nb", TAIL_LINES,
          "2\n3\n4\n5\n6\n7\n8\n9\na\nb", "", 0);
    shows("  indented\nb", TAIL_LINES, "  indented\nb", "", 0);
    shows("see Traceback (most recent call last): above", TAIL_LINES,
          "see Traceback (most recent call last): above", "", 0);
}
END_TEST

START_TEST(tracebacks)
{
    shows(HEADER FRAME "E: x\n", TAIL_TRACEBACK, HEADER FRAME "E: x", "", 0);
    shows("noise\n" HEADER FRAME FRAME "E: x\nmore of it\n\nn1\nn2\n",
          TAIL_TRACEBACK, HEADER FRAME FRAME "E: x\nmore of it", "n1\nn2", 0);
    shows(HEADER FRAME "E\n\n1\n2\n3\n4\n5\n6", TAIL_TRACEBACK,
          HEADER FRAME "E", "3\n4\n5\n6", 1);
    /* The last one counts. */
    shows(HEADER FRAME "E: first\n\nretrying\n" HEADER FRAME "E: last",
          TAIL_TRACEBACK, HEADER FRAME "E: last", "", 0);
    /* It has as many lines as it has; its message has not. */
    shows(HEADER FRAME "E\n1\n2\n3\n4\n5\n6\n7\n8\n", TAIL_TRACEBACK,
          HEADER FRAME "E\n1\n2\n3\n4\n5\n6\n7", "8", 0);
    shows(HEADER, TAIL_TRACEBACK, "Traceback (most recent call last):", "", 0);
    shows(HEADER FRAME "E\r\n\r\nnext\r\n", TAIL_TRACEBACK, HEADER FRAME "E",
          "next", 0);
}
END_TEST

#define DURING                                                     \
    "\nDuring handling of the above exception, another exception " \
    "occurred:\n\n"
#define CAUSE                                                      \
    "\nThe above exception was the direct cause of the following " \
    "exception:\n\n"

START_TEST(chains)
{
#define CHAIN HEADER FRAME "A: 1\n" DURING HEADER FRAME "B\n" CAUSE HEADER FRAME
    shows(HEADER FRAME "Z\n\n" CHAIN "C: 3\n\nafter", TAIL_TRACEBACK,
          CHAIN "C: 3", "after", 0);
    shows(HEADER FRAME "A\n" DURING "other\n" HEADER FRAME "B", TAIL_TRACEBACK,
          HEADER FRAME "B", "", 0);
}
END_TEST

/* PyTorch puts the rank before each line. */
START_TEST(prefixes)
{
    static const char text[] = "[rank1]: Traceback (most recent call last):\n"
                               "[rank1]:   File \"a\", line 1\n"
                               "[rank1]: E: x\n"
                               "[rank1]:[W ProcessGroup] destroyed\n";

    shows(text, TAIL_TRACEBACK,
          "[rank1]: Traceback (most recent call last):\n"
          "[rank1]:   File \"a\", line 1\n[rank1]: E: x",
          "[rank1]:[W ProcessGroup] destroyed", 0);
}
END_TEST

START_TEST(ignored)
{
    shows(HEADER FRAME "E: x\n\nException ignored in: <f>\n" HEADER FRAME
                       "E: no\n",
          TAIL_TRACEBACK, HEADER FRAME "E: x", FRAME "E: no", 1);
    shows("Exception ignored in: <f>\n" HEADER "E: no\n", TAIL_LINES,
          "Exception ignored in: <f>\n" HEADER "E: no", "", 0);
}
END_TEST

/* Only the end of a long one was kept. */
START_TEST(cut)
{
    shows("    code\n" FRAME "E: x\n\nnext", TAIL_TRACEBACK,
          "    code\n" FRAME "E: x", "next", 0);
    shows(FRAME "E: x\n" DURING HEADER FRAME "E: y", TAIL_TRACEBACK,
          FRAME "E: x\n" DURING HEADER FRAME "E: y", "", 0);
}
END_TEST

START_TEST(uncaught)
{
#define THROWN "terminate called after throwing an instance of 'c10::Error'\n"
    shows("a\n" THROWN "  what():  bad\nframe #0\n\nAborted\n", TAIL_EXCEPTION,
          THROWN "  what():  bad\nframe #0", "Aborted", 0);
    shows(HEADER FRAME "E: x\n" THROWN "  what():  y", TAIL_TRACEBACK,
          HEADER FRAME "E: x", THROWN "  what():  y", 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tail_view");
    TCase *tc = tcase_create("all");

    suite_add_tcase(s, tc);
    tcase_add_test(tc, lines);
    tcase_add_test(tc, tracebacks);
    tcase_add_test(tc, chains);
    tcase_add_test(tc, prefixes);
    tcase_add_test(tc, ignored);
    tcase_add_test(tc, cut);
    tcase_add_test(tc, uncaught);
    return unit_run(s);
}
