/* SPDX-License-Identifier: Apache-2.0 */
/* lib/remote/launchers.h: the table, row by row, and the option that chooses
 * one. */
#include "cmd/hvdrun/options/options_table.h"
#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/remote/launchers.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* Every function that the other files call without asking is there, and each
 * launcher bounds how many hosts it reaches at once, or its plug-in does. */
START_TEST(rows_are_whole)
{
    const struct launcher *l = &launcher_table[_i];

    ck_assert_ptr_nonnull(l->name);
    ck_assert_ptr_nonnull(l->open);
    ck_assert_int_eq(l->starts_max == 0, l->load != NULL);
    if (l->obeys_max_startups)
        ck_assert_int_gt(l->starts_max, 0);
    if (l->load) /* what its plug-in can do depends on the configuration */
        ck_assert_int_eq(l->needs_config, 1);
}
END_TEST

/* A host changes its launcher once at most, to one that needs no plug-in. */
START_TEST(falls_back_once)
{
    const struct launcher *instead = launcher_table[_i].instead;

    if (!instead)
        return;
    ck_assert_int_ge((int)(instead - launcher_table), 0);
    ck_assert_int_lt((int)(instead - launcher_table), REMOTE_LAUNCHERS);
    ck_assert_ptr_null(instead->instead);
    ck_assert_ptr_null(instead->load);
}
END_TEST

START_TEST(found_by_name)
{
    const char *name = launcher_table[_i].name;
    enum remote_launcher found = REMOTE_LAUNCHERS;
    char upper[32];
    size_t n = strlen(name);

    ck_assert_uint_lt(n, sizeof(upper));
    for (size_t i = 0; i <= n; i++)
        upper[i] = (char)(name[i] >= 'a' ? name[i] - 'a' + 'A' : name[i]);
    ck_assert_int_eq(launcher_find(name, &found, NULL), 0);
    ck_assert_int_eq(found, _i);
    found = REMOTE_LAUNCHERS;
    ck_assert_int_eq(launcher_find(upper, &found, NULL), 0);
    ck_assert_int_eq(found, _i);
}
END_TEST

/* Returns the names of all launchers; hb_free. */
static char *names_joined(const char *between)
{
    struct hb_buf text = HB_BUF_INIT;

    for (int i = 0; i < REMOTE_LAUNCHERS; i++)
        ck_assert_int_eq(hb_buf_printf(&text, "%s%s", i ? between : "",
                                       launcher_table[i].name),
                         0);
    return hb_buf_detach(&text);
}

START_TEST(unknown_names)
{
    static const char *const names[] = {"", "ssh", "ssh2 ", "opensshd", "aut"};
    enum remote_launcher found = REMOTE_RSH;
    char *all = names_joined(" ");
    char *expected = hb_xasprintf("must be one of %s", all);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct hb_error err = HB_ERROR_INIT;

        ck_assert_int_eq(launcher_find(names[i], &found, &err), -HVD_EINVAL);
        ck_assert_str_eq(err.text, expected);
        ck_assert_int_eq(found, REMOTE_RSH);
    }
    hb_free(expected);
    hb_free(all);
}
END_TEST

START_TEST(refused_by_the_option)
{
    char *argv[] = {"hvdrun", "-np", "2", "--launcher", "telnet", "cmd", NULL};
    char *all = names_joined(" ");
    char *expected =
        hb_xasprintf("--launcher 'telnet': must be one of %s", all);
    struct hb_error err = HB_ERROR_INIT;
    struct options o;

    options_init(&o);
    ck_assert_int_eq(options_parse(&o, 6, argv, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, expected);
    options_fini(&o);
    hb_free(expected);
    hb_free(all);
}
END_TEST

/* --help-all and hvdrun(1) list the launchers. */
START_TEST(documented)
{
    const struct option *p = option_find("--launcher", strlen("--launcher"));
    char *all = names_joined(" | ");
    char *item = hb_xasprintf(".It Fl Fl launcher Cm %s\n", all);
    char line[256] = "";
    FILE *manual = fopen("man/hvdrun.1", "r");

    ck_assert_msg(manual != NULL, "run from the top of the source tree");
    while (strncmp(line, ".It Fl Fl launcher ", 19) != 0)
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), manual));
    fclose(manual);
    ck_assert_str_eq(line, item);
    for (int i = 0; i < REMOTE_LAUNCHERS; i++)
        ck_assert_msg(strstr(p->help, launcher_table[i].name) != NULL,
                      "the help of --launcher does not name %s",
                      launcher_table[i].name);
    hb_free(item);
    hb_free(all);
}
END_TEST

/* Every launcher can be chosen on the command line; the one that runs a command
 * of the user's comes with that command. */
START_TEST(chosen_by_the_option)
{
    struct hb_strv argv = HB_STRV_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct options o;

    options_init(&o);
    hb_strv_split(&argv, "hvdrun -np 2 --launcher", " ");
    ck_assert_int_eq(hb_strv_add(&argv, launcher_table[_i].name), 0);
    hb_strv_split(&argv, _i == REMOTE_RSH ? "--rsh docker cmd" : "cmd", " ");
    ck_assert_msg(options_parse(&o, (int)argv.count, argv.items, &err) == 0,
                  "%s", err.text);
    ck_assert_int_eq(o.launcher, _i);
    options_fini(&o);
    hb_strv_free(&argv);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("launchers");
    TCase *t = tcase_create("all");

    tcase_add_loop_test(t, rows_are_whole, 0, REMOTE_LAUNCHERS);
    tcase_add_loop_test(t, falls_back_once, 0, REMOTE_LAUNCHERS);
    tcase_add_loop_test(t, found_by_name, 0, REMOTE_LAUNCHERS);
    tcase_add_test(t, unknown_names);
    tcase_add_test(t, refused_by_the_option);
    tcase_add_test(t, documented);
    tcase_add_loop_test(t, chosen_by_the_option, 0, REMOTE_LAUNCHERS);
    suite_add_tcase(s, t);
    return unit_run(s);
}
