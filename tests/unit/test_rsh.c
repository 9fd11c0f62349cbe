/* SPDX-License-Identifier: Apache-2.0 */
/* lib/remote/rsh.h: how a template becomes a command. */
#include "lib/remote/rsh.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct hb_strv words, argv;

static void setup(void)
{
    memset(&words, 0, sizeof(words));
    memset(&argv, 0, sizeof(argv));
}

static void teardown(void)
{
    hb_strv_free(&words);
    hb_strv_free(&argv);
}

/* Returns the command for host n1, user al, port 23, its words joined by |. */
static const char *command(const char *template)
{
    static char joined[1024];
    struct hb_error err = HB_ERROR_INIT;

    teardown();
    joined[0] = '\0';
    ck_assert_msg(rsh_parse(template, &words, &err) == 0, "%s", err.text);
    ck_assert_int_eq(rsh_argv(&words, "n1", "al", 23, &argv, &err), 0);
    for (size_t i = 0; i < argv.count; i++) {
        strcat(joined, i ? "|" : "");
        strcat(joined, argv.items[i]);
    }
    return joined;
}

START_TEST(splits_words)
{
    ck_assert_str_eq(command("rsh"), "rsh|n1|/bin/sh");
    ck_assert_str_eq(command("  rsh \t -q\n"), "rsh|-q|n1|/bin/sh");
    ck_assert_str_eq(command("a 'b  c' \"d  e\" f\\ g"),
                     "a|b  c|d  e|f g|n1|/bin/sh");
    ck_assert_str_eq(command("a x'y'\"z\"'' '' \"\""), "a|xyz|||n1|/bin/sh");
    ck_assert_str_eq(command("a '\"' \"'\" '\\' \"\\\"\\n\\\\\\$\" \\\" \\"),
                     "a|\"|'|\\|\"\\n\\$|\"|\\|n1|/bin/sh");
    ck_assert_str_eq(command("a $HOME `id` * ~ # ; >"),
                     "a|$HOME|`id`|*|~|#|;|>|n1|/bin/sh");
}
END_TEST

START_TEST(replaces_fields)
{
    ck_assert_str_eq(command("kubectl exec -i {host} --"),
                     "kubectl|exec|-i|n1|--|/bin/sh");
    ck_assert_str_eq(command("ssh -p{port} -l {user} pod-{host}.{host}"),
                     "ssh|-p23|-l|al|pod-n1.n1|/bin/sh");
    ck_assert_str_eq(command("a {port}"), "a|23|n1|/bin/sh");
    ck_assert_str_eq(command("a {hos} {HOST} {{host}} '{host}'"),
                     "a|{hos}|{HOST}|{n1}|n1|/bin/sh");
}
END_TEST

/* A field's value is not expanded again and stays one word. */
START_TEST(fields_are_not_expanded_again)
{
    rsh_parse("a {host}", &words, NULL);
    ck_assert_int_eq(rsh_argv(&words, "x {user} 'y", "al", 1, &argv, NULL), 0);
    ck_assert_str_eq(argv.items[1], "x {user} 'y");
    ck_assert_uint_eq(argv.count, 3);
}
END_TEST

static void refused(const char *template, const char *text)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(rsh_parse(template, &words, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, text);
    ck_assert_uint_eq(words.count, 0);
}

START_TEST(bad_templates)
{
    refused("", "--rsh: names no command");
    refused("  ", "--rsh: names no command");
    refused("'' x", "--rsh: names no command");
    refused("a 'b", "--rsh: a ' is not closed");
    refused("a \"b\\\"", "--rsh: a \" is not closed");
}
END_TEST

START_TEST(bad_names)
{
    struct hb_error err = HB_ERROR_INIT;

    rsh_parse("a", &words, NULL);
    ck_assert_int_eq(rsh_argv(&words, "-x", "al", 1, &argv, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "--rsh: the host '-x' is not valid");
    hb_error_clear(&err);
    ck_assert_int_eq(rsh_argv(&words, "n1", "", 1, &argv, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "--rsh: the user '' is not valid");
    ck_assert_uint_eq(argv.count, 0);
}
END_TEST

static int attempt(void *arg)
{
    int rc;

    (void)arg;
    teardown();
    rc = rsh_parse("kubectl 'exec -i' {host} --", &words, NULL);
    return rc < 0 ? rc : rsh_argv(&words, "n1", "al", 23, &argv, NULL);
}

START_TEST(out_of_memory)
{
    unit_fail_each(attempt, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rsh");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, splits_words);
    tcase_add_test(tc, replaces_fields);
    tcase_add_test(tc, fields_are_not_expanded_again);
    tcase_add_test(tc, bad_templates);
    tcase_add_test(tc, bad_names);
    tcase_add_test(tc, out_of_memory);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
