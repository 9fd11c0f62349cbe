/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, the help and the manual agree. */
#include "cmd/hvdrun/options_table.h"
#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

START_TEST(table_is_sound)
{
    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *p = &options_table[i];

        ck_assert_msg(!strncmp(p->names[0], "--", 2), "%s", p->names[0]);
        ck_assert_ptr_nonnull(p->help);
        ck_assert_int_le((int)strlen(p->help), 46);
        ck_assert_msg((p->arg == ARG_NONE) == !p->metavar, "%s", p->names[0]);
        ck_assert_msg((p->target == TO_CALL) == !!p->call, "%s", p->names[0]);
        ck_assert_msg(p->target == TO_MS || (p->target == TO_KNOB ||
                                             p->target == TO_ENV) == !!p->env,
                      "%s", p->names[0]);
        for (int n = 0; n < OPTION_NAMES_MAX && p->names[n]; n++)
            ck_assert_ptr_eq(option_find(p->names[n], strlen(p->names[n])), p);
    }
}
END_TEST

START_TEST(help_is_short_and_help_all_is_whole)
{
    char *brief = options_help(), *all = options_help_all();
    int lines = 0;

    for (char *p = brief; *p; p++)
        lines += *p == '\n';
    ck_assert_int_le(lines, 66);
    ck_assert_ptr_null(strstr(brief, "--min-num-proc"));
    for (size_t i = 0; i < options_table_count; i++)
        ck_assert_ptr_nonnull(strstr(all, options_table[i].names[0]));
    for (char *p = strtok(all, "\n"); p; p = strtok(NULL, "\n"))
        ck_assert_int_le((int)strlen(p), 80);
    hb_free(brief);
    hb_free(all);
}
END_TEST

static char *read_manual(const char *path)
{
    FILE *f = fopen(path, "r");
    struct hb_buf text = HB_BUF_INIT;
    char chunk[4096];
    size_t n;

    ck_assert_msg(f != NULL, "run from the top of the source tree");
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        hb_buf_append(&text, chunk, n);
    fclose(f);
    return hb_buf_detach(&text);
}

/* Names appear in hvdrun(1) as `Fl Fl wdir`, `Fl np`. */
static int manual_has(const char *manual, const char *name)
{
    char *macro = hb_xasprintf("Fl %s", name + 1);
    size_t len;
    int found = 0;

    if (macro[3] == '-') {
        hb_free(macro);
        macro = hb_xasprintf("Fl Fl %s", name + 2);
    }
    len = strlen(macro);
    for (const char *p = strstr(manual, macro); p && !found;
         p = strstr(p + 1, macro))
        found = strchr(" \n", p[len]) != NULL;
    hb_free(macro);
    return found;
}

START_TEST(manual_has_every_option)
{
    char *manual = read_manual("man/hvdrun.1");

    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *p = &options_table[i];

        for (int n = 0; n < OPTION_NAMES_MAX && p->names[n]; n++)
            ck_assert_msg(manual_has(manual, p->names[n]),
                          "%s is not in hvdrun(1)", p->names[n]);
    }
    hb_free(manual);
}
END_TEST

/* Each `.It Fl` line of the manual names options that exist. */
START_TEST(manual_has_no_other_option)
{
    char *manual = read_manual("man/hvdrun.1");
    int count = 0;

    for (char *line = strtok(manual, "\n"); line; line = strtok(NULL, "\n")) {
        char name[64];
        const char *word = line + 7;
        int dashes = 1;

        if (strncmp(line, ".It Fl ", 7) != 0)
            continue;
        if (!strncmp(word, "Fl ", 3)) {
            word += 3;
            dashes = 2;
        }
        snprintf(name, sizeof(name), "%s%.*s", dashes == 2 ? "--" : "-",
                 (int)strcspn(word, " "), word);
        ck_assert_msg(option_find(name, strlen(name)) != NULL,
                      "hvdrun(1) has %s", name);
        count++;
    }
    ck_assert_int_ge(count, (int)options_table_count / 2);
    hb_free(manual);
}
END_TEST

START_TEST(hvd_env_has_every_knob)
{
    char *manual = read_manual("man/hvd-env.7");

    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *p = &options_table[i];
        char *item, *mention;

        if (!p->env)
            continue;
        item = hb_xasprintf(".It Ev HVD_%s\n", p->env);
        mention = hb_xasprintf("Ev %s ", p->env);
        ck_assert_msg(strstr(manual, item) || strstr(manual, mention),
                      "%s is not in hvd-env(7)", p->env);
        hb_free(item);
        hb_free(mention);
    }
    hb_free(manual);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("options_table");
    TCase *t = tcase_create("options_table");

    tcase_add_test(t, table_is_sound);
    tcase_add_test(t, help_is_short_and_help_all_is_whole);
    tcase_add_test(t, manual_has_every_option);
    tcase_add_test(t, manual_has_no_other_option);
    tcase_add_test(t, hvd_env_has_every_knob);
    suite_add_tcase(s, t);
    return unit_run(s);
}
