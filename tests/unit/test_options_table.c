/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, --help and the manual agree. */
#include "cmd/hvdrun/options/options_table.h"
#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/idle_knobs.h"
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
    ck_assert_int_le(lines, 68);
    ck_assert_ptr_null(strstr(brief, "--slots-per-host"));
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

/* Returns whether hvdrun(1) has an option, as `Fl Fl wdir` or `Fl np`. */
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

START_TEST(manual_says_what_mpi_refuses)
{
    char *manual = read_manual("man/hvdrun.1");
    char *list = strstr(manual, "own agents are refused:\n");
    char *end = list ? strstr(list, ".\nA program") : NULL;

    ck_assert_msg(end != NULL, "hvdrun(1) does not list what --mpi refuses");
    end[1] = '\0';
    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *p = &options_table[i];

        ck_assert_msg(
            !(p->flags & OPTION_AGENT) || manual_has(list, p->names[0]),
            "%s is not in the list of what --mpi refuses in hvdrun(1)",
            p->names[0]);
    }
    hb_free(manual);
}
END_TEST

/* All options of horovodrun 0.28, and no others, lack OPTION_OWN. */
START_TEST(horovodrun_options_are_marked)
{
    static const char theirs[] =
        " --autotune --autotune-bayes-opt-max-samples"
        " --autotune-gaussian-process-noise --autotune-log-file"
        " --autotune-steps-per-sample --autotune-warmup-samples"
        " --binding-args --blacklist-cooldown-range --cache-capacity"
        " --check-build --config-file --cycle-time-ms --disable-cache"
        " --elastic-timeout --fusion-threshold-mb --gloo"
        " --gloo-timeout-seconds --help --hierarchical-allgather"
        " --hierarchical-allreduce --host-discovery-script --hostfile"
        " --hosts --jsrun --log-hide-timestamp --log-level"
        " --log-with-timestamp --log-without-timestamp --max-np"
        " --max-num-proc --min-np --min-num-proc --mpi --mpi-args"
        " --mpi-threads-disable --network-interface --network-interfaces"
        " --no-autotune --no-hierarchical-allgather"
        " --no-hierarchical-allreduce --no-log-hide-timestamp"
        " --no-mpi-threads-disable --no-stall-check"
        " --no-timeline-mark-cycles --no-torus-allreduce --num-nccl-streams"
        " --num-proc --output-filename --prefix-output-with-timestamp"
        " --reset-limit --slots-per-host --ssh-identity-file --ssh-port"
        " --stall-check --stall-check-shutdown-time-seconds"
        " --stall-check-warning-time-seconds --start-timeout --tcp"
        " --thread-affinity --timeline-filename --timeline-mark-cycles"
        " --torus-allreduce --verbose --version -H -cb -h -hostfile -i -np"
        " -p -prefix-timestamp -v ";
    char *words = hb_xstrdup(theirs), name[64];

    for (char *p = strtok(words, " "); p; p = strtok(NULL, " "))
        ck_assert_msg(option_find(p, strlen(p)) != NULL, "no %s", p);
    hb_free(words);
    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *p = &options_table[i];

        snprintf(name, sizeof(name), " %s ", p->names[0]);
        ck_assert_msg(!strstr(theirs, name) == !!(p->flags & OPTION_OWN), "%s",
                      p->names[0]);
    }
}
END_TEST

/* Each `.It Fl` line of the manual names existing options. */
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

/* Returns the text of an option's entry in hvdrun(1), from its `.It` on. */
static char *entry_of(const char *manual, const char *name)
{
    char *item = hb_xasprintf("Fl Fl %s", name + 2);
    const char *at = strstr(manual, item);
    const char *end;

    for (; at; at = strstr(at + 1, item)) {
        const char *line = at;

        while (line > manual && line[-1] != '\n')
            line--;
        if (!strncmp(line, ".It ", 4) && strchr(" \n", at[strlen(item)]))
            break;
    }
    ck_assert_msg(at != NULL, "%s has no entry in hvdrun(1)", name);
    end = strstr(at, "\n.It ");
    hb_free(item);
    return hb_xasprintf("%.*s", (int)(end ? end - at : (long)strlen(at)), at);
}

/* --help, hvdrun(1) and the table agree on which options have no effect. */
START_TEST(options_without_effect_are_marked)
{
    char *manual = read_manual("man/hvdrun.1");
    int idle = 0;

    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *o = &options_table[i];
        const char *why = option_idle_why(o);
        char *entry, *text;

        if (o->target != TO_KNOB)
            continue;
        entry = entry_of(manual, o->names[0]);
        text = hb_xasprintf("No effect: %s.", why ? why : "");
        ck_assert_msg(!!strstr(entry, "No effect") == !!why,
                      "%s in hvdrun(1): %s", o->names[0], entry);
        ck_assert_msg(!why || strstr(entry, text), "%s in hvdrun(1): %s",
                      o->names[0], entry);
        idle += why != NULL;
        hb_free(entry);
        hb_free(text);
    }
    ck_assert_int_gt(idle, 0);
    hb_free(manual);
}
END_TEST

START_TEST(help_marks_options_without_effect)
{
    char *all = options_help_all();

    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *o = &options_table[i];
        const char *after = o->arg == ARG_OPTIONAL ? "[" : " ";
        char *item =
            hb_xasprintf(" %s%s", o->names[0], o->metavar ? after : "");
        const char *at = strstr(all, item);
        const char *help = at ? strstr(at, o->help) : NULL;

        ck_assert_msg(help != NULL, "%s is not in --help-all", o->names[0]);
        help += strlen(o->help);
        ck_assert_msg(!strncmp(help, " [no effect]\n", 13) ==
                          (option_idle_why(o) != NULL),
                      "%s in --help-all", o->names[0]);
        hb_free(item);
    }
    hb_free(all);
}
END_TEST

/* hvd-env(7) has exactly the table's variables. */
START_TEST(hvd_env_lists_knobs_without_effect)
{
    char *manual = read_manual("man/hvd-env.7");
    char *list = strstr(manual, "with no effect in this version");
    size_t rows = 0;

    ck_assert_ptr_nonnull(list);
    *strstr(list, ".El") = '\0';
    for (const char *p = strstr(list, ".It Ev "); p;
         p = strstr(p + 1, ".It Ev "))
        rows++;
    ck_assert_uint_eq(rows, hb_idle_knobs_count);
    for (size_t i = 0; i < hb_idle_knobs_count; i++) {
        char *row = hb_xasprintf(".It Ev %s Ta %s\n", hb_idle_knobs[i].name,
                                 hb_idle_knobs[i].why);

        ck_assert_msg(strstr(list, row), "hvd-env(7) has no %s", row);
        hb_free(row);
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
    tcase_add_test(t, manual_says_what_mpi_refuses);
    tcase_add_test(t, horovodrun_options_are_marked);
    tcase_add_test(t, manual_has_no_other_option);
    tcase_add_test(t, hvd_env_has_every_knob);
    tcase_add_test(t, options_without_effect_are_marked);
    tcase_add_test(t, help_marks_options_without_effect);
    tcase_add_test(t, hvd_env_lists_knobs_without_effect);
    suite_add_tcase(s, t);
    return unit_run(s);
}
