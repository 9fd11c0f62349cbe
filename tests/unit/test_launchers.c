/* SPDX-License-Identifier: Apache-2.0 */
/* lib/remote/launchers.h: the table, row by row, and the option that chooses
 * one. */
#include "cmd/hvdrun/options/options.h"
#include "lib/base/strv.h"
#include "lib/remote/launchers.h"
#include "tests/unit/unit.h"

#include <string.h>

/* Every function that the other files call without asking is there, and each
 * launcher bounds how many hosts it reaches at once, or its plug-in does. */
START_TEST(rows_are_whole)
{
    const struct launcher *l = &launcher_table[_i];

    ck_assert_ptr_nonnull(l->name);
    ck_assert_ptr_nonnull(l->open);
    ck_assert_ptr_nonnull(l->explain);
    ck_assert_int_eq(l->starts_max == 0, l->load != NULL);
    ck_assert_int_eq(l->ended_as_ssh == NULL, l->load != NULL);
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

START_TEST(unknown_names)
{
    static const char *const names[] = {"", "ssh", "ssh2 ", "opensshd", "aut"};
    enum remote_launcher found = REMOTE_RSH;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct hb_error err = HB_ERROR_INIT;

        ck_assert_int_eq(launcher_find(names[i], &found, &err), -HVD_EINVAL);
        ck_assert_str_eq(err.text, "must be one of auto ssh2 openssh rsh");
        ck_assert_int_eq(found, REMOTE_RSH);
    }
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
    hb_strv_split(&argv, launcher_table[_i].check ? "--rsh docker cmd" : "cmd",
                  " ");
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
    tcase_add_loop_test(t, chosen_by_the_option, 0, REMOTE_LAUNCHERS);
    suite_add_tcase(s, t);
    return unit_run(s);
}
