/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/output/lines: whole tagged lines from any pieces. */
#include "lib/job/output/lines.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct lines l;

static void init(struct lines_config config)
{
    if (!config.stream)
        config.stream = "stdout";
    if (!config.ranks)
        config.ranks = 3;
    lines_init(&l, &config);
}

static void init_tagged(void)
{
    init((struct lines_config){.tag = 1});
}

static void setup(void)
{
    init_tagged();
}

static void teardown(void)
{
    lines_fini(&l);
}

static void feed(int rank, const char *text)
{
    lines_feed(&l, rank, text, strlen(text));
}

static void expect(const char *text)
{
    ck_assert_str_eq(hb_buf_data(&l.out), text);
    ck_assert_uint_eq(hb_buf_len(&l.out), strlen(text));
}

START_TEST(tags_each_line)
{
    feed(0, "a\nb\n");
    feed(2, "c\n");
    expect("[0]<stdout>:a\n[0]<stdout>:b\n[2]<stdout>:c\n");
}
END_TEST

START_TEST(waits_for_the_end)
{
    feed(0, "a");
    expect("");
    feed(1, "x\n");
    feed(0, "b\n");
    expect("[1]<stdout>:x\n[0]<stdout>:ab\n");
}
END_TEST

START_TEST(last_line_gets_an_end)
{
    feed(0, "a");
    lines_end(&l, 0);
    lines_end(&l, 0);
    lines_end(&l, 1);
    feed(1, "b\n");
    lines_end(&l, 1);
    expect("[0]<stdout>:a\n[1]<stdout>:b\n");
}
END_TEST

START_TEST(carriage_return_ends_a_line)
{
    feed(0, "10%\r20%\r");
    expect("[0]<stdout>:10%\r[0]<stdout>:20%\r");
    feed(0, "done\r\n\n");
    expect("[0]<stdout>:10%\r[0]<stdout>:20%\r[0]<stdout>:done\r\n"
           "[0]<stdout>:\n");
}
END_TEST

START_TEST(split_crlf)
{
    feed(0, "a\r");
    feed(0, "\nb\n");
    expect("[0]<stdout>:a\r\n[0]<stdout>:b\n");
}
END_TEST

/* Output of another rank came between \r and \n: the \n becomes a line of its
 * own and nothing is lost. */
START_TEST(split_crlf_interrupted)
{
    feed(0, "a\r");
    feed(1, "x\n");
    feed(0, "\nb\n");
    expect("[0]<stdout>:a\r[1]<stdout>:x\n[0]<stdout>:\n[0]<stdout>:b\n");
}
END_TEST

START_TEST(bytes_are_intact)
{
    static const char bytes[] = "\0\xff\xc3(\x1b[31m\0\n";

    lines_feed(&l, 1, bytes, sizeof(bytes) - 1);
    ck_assert_uint_eq(hb_buf_len(&l.out), 12 + sizeof(bytes) - 1);
    ck_assert_mem_eq(hb_buf_data(&l.out) + 12, bytes, sizeof(bytes) - 1);
}
END_TEST

START_TEST(untagged)
{
    lines_fini(&l);
    init((struct lines_config){.tag = 0});
    feed(0, "a\nb");
    feed(1, "c\n");
    lines_end(&l, 0);
    expect("a\nc\nb");
    feed(1, "d\n");
    feed(1, "e");
    lines_end(&l, 1);
    expect("a\nc\nb\nd\ne");
    lines_message(&l, "m\n", 2);
    expect("a\nc\nb\nd\ne\nm\n");
}
END_TEST

START_TEST(timestamps)
{
    lines_fini(&l);
    init((struct lines_config){.tag = 1, .timestamp = 1});
    setenv("TZ", "UTC0", 1);
    lines_set_time(&l, 1795219381);
    feed(0, "a\n");
    lines_set_time(&l, 1793491201);
    feed(0, "b\n");
    expect("Sat Nov 21 00:03:01 2026[0]<stdout>:a\n"
           "Sun Nov  1 00:00:01 2026[0]<stdout>:b\n");
}
END_TEST

START_TEST(colors_only_the_tag)
{
    const char *text;

    lines_fini(&l);
    init((struct lines_config){.tag = 1, .color = 1, .stream = "stderr"});
    feed(1, "a\n");
    text = hb_buf_data(&l.out);
    ck_assert_int_eq(strncmp(text, "\033[", 2), 0);
    ck_assert_ptr_nonnull(strstr(text, "m[1]<stderr>:\033[0ma\n"));
}
END_TEST

/* ---- Long lines ---- */

static void init_short(size_t total_max)
{
    lines_fini(&l);
    init((struct lines_config){
        .tag = 1, .line_max = 8, .piece_min = 4, .total_max = total_max});
}

START_TEST(long_line_is_not_interleaved)
{
    init_short(1000);
    feed(0, "0123456");
    expect("");
    feed(0, "7");
    expect("[0]<stdout>:01234567");
    feed(1, "one\ntw");
    feed(2, "x");
    lines_end(&l, 2);
    feed(0, "89");
    expect("[0]<stdout>:0123456789");
    ck_assert_uint_gt(lines_held(&l), 0);
    feed(0, "!\nnext\n");
    expect("[0]<stdout>:0123456789!\n[0]<stdout>:next\n[1]<stdout>:one\n"
           "[2]<stdout>:x\n");
    ck_assert_uint_eq(lines_held(&l), 0);
    feed(1, "o\n");
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&l.out), "[1]<stdout>:two\n"));
}
END_TEST

START_TEST(long_line_ends_with_its_rank)
{
    init_short(1000);
    feed(0, "01234567");
    feed(1, "a\n");
    lines_end(&l, 0);
    expect("[0]<stdout>:01234567\n[1]<stdout>:a\n");
}
END_TEST

START_TEST(break_lets_others_go_on)
{
    init_short(1000);
    feed(0, "01234567");
    feed(1, "a\n");
    lines_break(&l);
    feed(0, "89\n");
    expect("[0]<stdout>:01234567\n[1]<stdout>:a\n[0]<stdout>:89\n");
    lines_break(&l);
    expect("[0]<stdout>:01234567\n[1]<stdout>:a\n[0]<stdout>:89\n");
}
END_TEST

START_TEST(held_line_can_become_the_owner)
{
    init_short(1000);
    feed(0, "01234567");
    feed(1, "abcdefghi");
    feed(2, "x\n");
    feed(0, "\n");
    expect("[0]<stdout>:01234567\n[1]<stdout>:abcdefghi");
    feed(1, "j\n");
    expect("[0]<stdout>:01234567\n[1]<stdout>:abcdefghij\n"
           "[2]<stdout>:x\n");
    ck_assert_uint_eq(lines_held(&l), 0);
}
END_TEST

START_TEST(total_is_bounded)
{
    init_short(10);
    feed(0, "aaa");
    feed(1, "bbbb");
    feed(2, "cc");
    expect("");
    feed(2, "cc");
    expect("[2]<stdout>:cccc");
}
END_TEST

/* A held line without an end is ended before a message, too. */
START_TEST(message_is_not_glued_to_a_held_line)
{
    teardown();
    init((struct lines_config){.tag = 1, .line_max = 8, .piece_min = 4});
    feed(0, "01234567");
    feed(1, "abcdefgh");
    lines_message(&l, "hvdrun: x\n", 10);
    feed(1, "i\n");
    expect("[0]<stdout>:01234567\n[1]<stdout>:abcdefgh\nhvdrun: x\n"
           "[1]<stdout>:i\n");
}
END_TEST

START_TEST(messages_and_tags_are_in_no_rank_s_colour)
{
    teardown();
    init((struct lines_config){.tag = 1, .terminal = 1});
    feed(0, "\033[8mhidden\033[2J\n");
    lines_message(&l, "m\n", 2);
    lines_message(&l, "n\n", 2);
    feed(1, "x\n");
    expect("\033[0m[0]<stdout>:\033[8mhidden\n\033[0mm\n\033[0mn\n"
           "\033[0m[1]<stdout>:x\n");
}
END_TEST

START_TEST(message_ends_an_open_line)
{
    init_short(1000);
    feed(0, "01234567");
    feed(1, "a\n");
    lines_message(&l, "hvdrun: x\n", 10);
    expect("[0]<stdout>:01234567\n[1]<stdout>:a\nhvdrun: x\n");
}
END_TEST

START_TEST(one_megabyte_line)
{
    size_t len = 1 << 20;
    char *line = malloc(len);

    ck_assert_ptr_nonnull(line);
    memset(line, 'x', len);
    line[len - 1] = '\n';
    for (size_t i = 0; i < len; i += 4096) {
        lines_feed(&l, 0, line + i, 4096);
        feed(1, "noise\n");
    }
    ck_assert_ptr_nonnull(
        memmem(hb_buf_data(&l.out), hb_buf_len(&l.out), line, len));
    free(line);
}
END_TEST

/* ---- Any split gives the same ---- */

static const char sample[] = "one\ntwo\r\nthree\rfour\n\n\r\r\n\nlast";

static char *whole(void)
{
    char *text;

    feed(0, sample);
    lines_end(&l, 0);
    text = strdup(hb_buf_data(&l.out));
    lines_fini(&l);
    return text;
}

START_TEST(every_split_in_three)
{
    char *want = whole();
    size_t len = strlen(sample);

    for (size_t i = 0; i <= len; i++)
        for (size_t j = i; j <= len; j++) {
            init_tagged();
            lines_feed(&l, 0, sample, i);
            lines_feed(&l, 0, sample + i, j - i);
            lines_feed(&l, 0, sample + j, len - j);
            lines_end(&l, 0);
            expect(want);
            lines_fini(&l);
        }
    free(want);
    init_tagged();
}
END_TEST

/* Removes rank's tags; `out` gets what that rank wrote. */
static void untag(int rank, struct hb_buf *out)
{
    const char *p = hb_buf_data(&l.out);
    const char *end = p + hb_buf_len(&l.out);

    while (p < end) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        ck_assert_ptr_nonnull(eol);
        ck_assert_int_eq(strncmp(p + 2, "]<stdout>:", 10), 0);
        if (p[1] == '0' + rank)
            ck_assert_int_eq(
                hb_buf_append(out, p + 12, (size_t)(eol + 1 - p) - 12), 0);
        p = eol + 1;
    }
}

/* Numbered lines of three ranks, of random length, in random pieces: each
 * rank's bytes arrive in order and complete, with one tag a line. */
START_TEST(random_interleaving)
{
    static const char digits[] = "0123456789abcdef";
    struct hb_buf want[3] = {HB_BUF_INIT, HB_BUF_INIT, HB_BUF_INIT};
    size_t pos[3] = {0, 0, 0};
    unsigned seed = (unsigned)_i;

    init_short(40);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 40; i++) {
            hb_buf_append(&want[r], digits, (size_t)rand_r(&seed) % 16);
            hb_buf_putc(&want[r], '\n');
        }
    for (int left = 3; left > 0;) {
        int r = rand_r(&seed) % 3;
        size_t rest = hb_buf_len(&want[r]) - pos[r];
        size_t n = (size_t)rand_r(&seed) % 9;
        if (n > rest)
            n = rest;
        lines_feed(&l, r, hb_buf_data(&want[r]) + pos[r], n);
        pos[r] += n;
        left -= n > 0 && n == rest;
    }
    for (int r = 0; r < 3; r++) {
        struct hb_buf got = HB_BUF_INIT;
        lines_end(&l, r);
        untag(r, &got);
        ck_assert_str_eq(hb_buf_data(&got), hb_buf_data(&want[r]));
        hb_buf_free(&got);
        hb_buf_free(&want[r]);
    }
    ck_assert_uint_eq(l.pending, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lines");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, tags_each_line);
    tcase_add_test(tc, waits_for_the_end);
    tcase_add_test(tc, last_line_gets_an_end);
    tcase_add_test(tc, carriage_return_ends_a_line);
    tcase_add_test(tc, split_crlf);
    tcase_add_test(tc, split_crlf_interrupted);
    tcase_add_test(tc, bytes_are_intact);
    tcase_add_test(tc, untagged);
    tcase_add_test(tc, timestamps);
    tcase_add_test(tc, colors_only_the_tag);
    tcase_add_test(tc, long_line_is_not_interleaved);
    tcase_add_test(tc, long_line_ends_with_its_rank);
    tcase_add_test(tc, break_lets_others_go_on);
    tcase_add_test(tc, held_line_can_become_the_owner);
    tcase_add_test(tc, total_is_bounded);
    tcase_add_test(tc, message_is_not_glued_to_a_held_line);
    tcase_add_test(tc, messages_and_tags_are_in_no_rank_s_colour);
    tcase_add_test(tc, message_ends_an_open_line);
    tcase_add_test(tc, one_megabyte_line);
    tcase_add_test(tc, every_split_in_three);
    tcase_add_loop_test(tc, random_interleaving, 0, 50);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
