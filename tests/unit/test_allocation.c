/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/hosts/batch/allocation.h: environments of each batch system, as the real
 * ones set them, and each malformed value.
 */
#include "lib/hosts/batch/allocation.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { VARIABLES_MAX = 8 };

static struct hb_error err;
static struct allocation allocation;

/* What the stand-in for Flux prints, and the command that it was asked for. */
static const char *flux_says;
static char flux_asked[128];

static int run_flux(void *arg, char *const *argv, struct hb_buf *out,
                    struct hb_error *e)
{
    (void)arg;
    flux_asked[0] = '\0';
    for (; *argv; argv++) {
        strcat(flux_asked, *argv);
        strcat(flux_asked, argv[1] ? " " : "");
    }
    if (!flux_says)
        return hb_error_set(e, HVD_ENOENT, "there is no program flux in PATH");
    return hb_buf_puts(out, flux_says);
}

static int read_with(char *const *variables, enum allocation_system want)
{
    struct hb_strv env = HB_STRV_INIT;
    const struct allocation_source source = {.env = &env, .run = run_flux};
    int rc;

    hb_error_clear(&err);
    hb_must(hb_strv_add_all(&env, variables));
    rc = allocation_read(&source, want, &allocation, &err);
    ck_assert_int_eq(rc, err.status);
    hb_strv_free(&env);
    return rc;
}

/* Formats the hosts as `a:2 b:4`. */
static const char *show(const struct hostlist *l)
{
    static char out[4096];
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < l->count && used < sizeof(out) - 300; i++)
        used += (size_t)snprintf(out + used, sizeof(out) - used, "%s%s:%d",
                                 i ? " " : "", l->entries[i].name,
                                 l->entries[i].slots);
    return out;
}

struct good {
    const char *variables[VARIABLES_MAX];
    const char *hosts;
};

static const struct good goods[] = {
    {{"SLURM_JOB_NODELIST=node[01-02]", "SLURM_TASKS_PER_NODE=2(x2)"},
     "node01:2 node02:2"},
    {{"SLURM_JOB_NODELIST=n[8-10],gpu7", "SLURM_TASKS_PER_NODE=3(x2),1,16"},
     "n8:3 n9:3 n10:1 gpu7:16"},
    {{"SLURM_JOB_NODELIST=r[1-2]n[01-02]-ib0", "SLURM_TASKS_PER_NODE=1(x4)"},
     "r1n01-ib0:1 r1n02-ib0:1 r2n01-ib0:1 r2n02-ib0:1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=4"}, "a:4"},
    /* without tasks: processors, as many as each task has */
    {{"SLURM_JOB_NODELIST=a,b", "SLURM_JOB_CPUS_PER_NODE=8,2"}, "a:8 b:2"},
    {{"SLURM_JOB_NODELIST=a,b", "SLURM_JOB_CPUS_PER_NODE=8,2",
      "SLURM_CPUS_PER_TASK=4"},
     "a:2 b:1"},
    {{"SLURM_JOB_NODELIST=a,b"}, "a:1 b:1"},
    /* a step of one host in a job of two */
    {{"SLURM_JOB_NODELIST=node[01-02]", "SLURM_TASKS_PER_NODE=1",
      "SLURM_STEP_NODELIST=node02", "SLURM_STEP_TASKS_PER_NODE=1"},
     "node02:1"},
    /* the interactive step of salloc */
    {{"SLURM_JOB_NODELIST=node[01-02]", "SLURM_TASKS_PER_NODE=2(x2)",
      "SLURM_STEP_NODELIST=node01", "SLURM_STEP_TASKS_PER_NODE=1"},
     "node01:2 node02:2"},
    /* heterogeneous: in the script, the plain names are the first component;
     * components may share a host */
    {{"SLURM_JOB_NODELIST=node01", "SLURM_TASKS_PER_NODE=2", "SLURM_HET_SIZE=2",
      "SLURM_JOB_NODELIST_HET_GROUP_0=node01",
      "SLURM_TASKS_PER_NODE_HET_GROUP_0=2",
      "SLURM_JOB_NODELIST_HET_GROUP_1=node[02-03]",
      "SLURM_TASKS_PER_NODE_HET_GROUP_1=1,3"},
     "node01:2 node02:1 node03:3"},
    {{"SLURM_HET_SIZE=2", "SLURM_JOB_NODELIST_HET_GROUP_0=a,b",
      "SLURM_TASKS_PER_NODE_HET_GROUP_0=2(x2)",
      "SLURM_JOB_NODELIST_HET_GROUP_1=b", "SLURM_TASKS_PER_NODE_HET_GROUP_1=1"},
     "a:2 b:3"},
    {{"LSB_MCPU_HOSTS=hostA 4 hostB 2 ", "LSB_JOBID=7"}, "hostA:4 hostB:2"},
    {{"LSB_MCPU_HOSTS=a 1 b 1 a 2"}, "a:3 b:1"},
    /* an inner Flux comes before the outer Slurm */
    {{"FLUX_URI=local:///x", "SLURM_JOB_NODELIST=z", "FLUX_JOB_ID="},
     "a1:4 a2:4"},
    {{"HOME=/"}, ""},
    {{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST="}, ""},
};

static const char two_nodes[] =
    "{\"version\": 1, \"execution\": {\"R_lite\": [{\"rank\": \"0-1\", "
    "\"children\": {\"core\": \"0-3\"}}], \"nodelist\": [\"a[1-2]\"]}}\n";

START_TEST(test_goods)
{
    const struct good *c = &goods[_i];

    flux_says = two_nodes;
    ck_assert_msg(
        read_with((char *const *)(uintptr_t)c->variables, ALLOCATION_AUTO) == 0,
        "%s", err.text);
    ck_assert_str_eq(show(&allocation.hosts), c->hosts);
    ck_assert_int_eq(allocation.system != NULL, c->hosts[0] != '\0');
    allocation_free(&allocation);
}
END_TEST

struct bad {
    const char *variables[VARIABLES_MAX];
    const char *text;
};

static const struct bad bads[] = {
    {{"SLURM_JOB_NODELIST=a[1"},
     "SLURM_JOB_NODELIST: column 2: '[' without "
     "']'"},
    {{"SLURM_JOB_NODELIST=a,b:2"},
     "SLURM_JOB_NODELIST: column 4: ':' is not "
     "allowed in a list of nodes"},
    {{"SLURM_JOB_NODELIST=a[1-2],a1"},
     "SLURM_JOB_NODELIST: names host a1 "
     "twice"},
    {{"SLURM_JOB_NODELIST=u@a"},
     "SLURM_JOB_NODELIST: column 2: '@' is not "
     "allowed in a list of nodes"},
    {{"SLURM_JOB_NODELIST=a[1-99999999]"},
     "SLURM_JOB_NODELIST: column 1: more than 65536 hosts are named"},
    {{"SLURM_JOB_NODELIST=a,b", "SLURM_TASKS_PER_NODE=2"},
     "SLURM_TASKS_PER_NODE '2' has numbers for 1 host, but SLURM_JOB_NODELIST "
     "names 2"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=2(x99999)"},
     "SLURM_TASKS_PER_NODE '2(x99999)': not a list of numbers like 2(x3),1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=0"},
     "SLURM_TASKS_PER_NODE '0': not a list of numbers like 2(x3),1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=65537"},
     "SLURM_TASKS_PER_NODE '65537': not a list of numbers like 2(x3),1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=99999999999999999999"},
     "SLURM_TASKS_PER_NODE '99999999999999999999': not a list of numbers like "
     "2(x3),1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=2,"},
     "SLURM_TASKS_PER_NODE '2,': not a list of numbers like 2(x3),1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=2(x1"},
     "SLURM_TASKS_PER_NODE '2(x1': not a list of numbers like 2(x3),1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=2(x)"},
     "SLURM_TASKS_PER_NODE '2(x)': not a list of numbers like 2(x3),1"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_JOB_CPUS_PER_NODE=2",
      "SLURM_CPUS_PER_TASK=0"},
     "SLURM_CPUS_PER_TASK: 0 is out of range; give a number from 1 to 65536"},
    {{"SLURM_JOB_NODELIST_HET_GROUP_0=a"}, "SLURM_HET_SIZE is not set"},
    {{"SLURM_JOB_NODELIST_HET_GROUP_0=a", "SLURM_HET_SIZE=129"},
     "SLURM_HET_SIZE: 129 is out of range; give a number from 1 to 128"},
    {{"SLURM_JOB_NODELIST_HET_GROUP_0=a", "SLURM_HET_SIZE=2"},
     "SLURM_JOB_NODELIST_HET_GROUP_1 is not set"},
    {{"SLURM_JOB_NODELIST_HET_GROUP_0=a", "SLURM_HET_SIZE=2",
      "SLURM_TASKS_PER_NODE_HET_GROUP_0=65536",
      "SLURM_JOB_NODELIST_HET_GROUP_1=a"},
     "SLURM_JOB_NODELIST_HET_GROUP: host a: its slots add up to 65537; at most "
     "65536 are possible"},
    {{"LSB_MCPU_HOSTS=a"},
     "LSB_MCPU_HOSTS: column 2: slots: a number is "
     "missing"},
    {{"LSB_MCPU_HOSTS=a b"},
     "LSB_MCPU_HOSTS: column 3: slots: not a whole "
     "number"},
    {{"LSB_MCPU_HOSTS=a 0"},
     "LSB_MCPU_HOSTS: column 3: slots: 0 is out of "
     "range; give 1 to 65536"},
    {{"LSB_MCPU_HOSTS= "}, "LSB_MCPU_HOSTS: names no host"},
    {{"LSB_DJOB_HOSTFILE=/nonexistent"},
     "LSB_DJOB_HOSTFILE: hostfile /nonexistent: cannot open: No such file or "
     "directory"},
    {{"PBS_NODEFILE=/nonexistent"},
     "PBS_NODEFILE: hostfile /nonexistent: cannot open: No such file or "
     "directory"},
    {{"PBS_NODEFILE=/dev/null"}, "PBS_NODEFILE: /dev/null: names no host"},
    {{"PE_HOSTFILE=/dev/zero"},
     "PE_HOSTFILE: hostfile /dev/zero: longer than "
     "16 MiB; is it a hostfile?"},
};

START_TEST(test_bads)
{
    const struct bad *c = &bads[_i];

    ck_assert_int_lt(
        read_with((char *const *)(uintptr_t)c->variables, ALLOCATION_AUTO), 0);
    ck_assert_str_eq(err.text, c->text);
    ck_assert_uint_eq(allocation.hosts.count, 0);
    allocation_free(&allocation);
}
END_TEST

/* Reads an allocation whose variable names a file with this text. */
static int read_file(const char *variable, const char *text)
{
    char item[128], *variables[] = {item, NULL};
    int fds[2], rc;

    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(write(fds[1], text, strlen(text)), (int)strlen(text));
    close(fds[1]);
    snprintf(item, sizeof(item), "%s=/dev/fd/%d", variable, fds[0]);
    rc = read_with(variables, ALLOCATION_AUTO);
    close(fds[0]);
    return rc;
}

static void expect_file(const char *variable, const char *text,
                        const char *hosts)
{
    ck_assert_msg(read_file(variable, text) == 0, "%s", err.text);
    ck_assert_str_eq(show(&allocation.hosts), hosts);
    allocation_free(&allocation);
}

START_TEST(test_files)
{
    expect_file("PBS_NODEFILE", "n1.cluster\nn1.cluster\nn2.cluster\n",
                "n1.cluster:2 n2.cluster:1");
    expect_file("LSB_DJOB_HOSTFILE", "a\nb\na\n", "a:2 b:1");
    expect_file("PE_HOSTFILE",
                "n1.x 4 all.q@n1.x UNDEFINED\n"
                "n2.x 2 all.q@n2.x 0,0:0,1\n"
                "n1.x 1 big.q@n1.x <NULL>\n\n",
                "n1.x:5 n2.x:2");
    ck_assert_int_lt(read_file("PE_HOSTFILE", "n1 4 q\nn2\n"), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "PE_HOSTFILE: /dev/fd/"));
    ck_assert_ptr_nonnull(strstr(err.text, ":2:3: slots: a number is missing"));
    ck_assert_int_lt(read_file("PBS_NODEFILE", "a\nb;c\n"), 0);
    ck_assert_ptr_nonnull(strstr(err.text, ":2:2: ';' is not allowed"));
}
END_TEST

static int read_flux(const char *text)
{
    char uri[] = "FLUX_URI=local:///run/flux/local", *variables[] = {uri, NULL};

    flux_says = text;
    return read_with(variables, ALLOCATION_AUTO);
}

static void expect_flux(const char *text, const char *hosts)
{
    ck_assert_msg(read_flux(text) == 0, "%s", err.text);
    ck_assert_str_eq(show(&allocation.hosts), hosts);
    allocation_free(&allocation);
}

#define R(lite, nodes)                                    \
    "{\"version\": 1, \"execution\": {\"R_lite\": [" lite \
    "], \"nodelist\": [" nodes "], \"starttime\": 0, \"expiration\": 0.0}}"
#define RANK(rank, children) \
    "{\"rank\": \"" rank "\", \"children\": {" children "}}"

START_TEST(test_flux)
{
    char uri[] = "FLUX_URI=x", job[] = "FLUX_JOB_ID=f3K",
         *variables[] = {uri, job, NULL};

    expect_flux(R(RANK("0-1", "\"core\": \"0-7\""), "\"n[01-02]\""),
                "n01:8 n02:8");
    ck_assert_str_eq(flux_asked, "flux resource R");
    expect_flux("flux: a warning\n" R(RANK("2", "\"core\": \"0-1,4\"") "," RANK(
                                          "0-1", "\"core\": \"0\""),
                                      "\"a\", \"b[1-2]\""),
                "a:1 b1:1 b2:3");
    /* GPUs are slots where there are some */
    expect_flux(R(RANK("0", "\"core\": \"0-7\", \"gpu\": \"0-1\"") "," RANK(
                      "1", "\"core\": \"0-7\""),
                  "\"a\",\"b\""),
                "a:2");
    /* many ranks on one host, as with flux start --test-size */
    expect_flux(R(RANK("0-3", "\"core\": \"0-1\""), "\"vm,vm,vm\",\"vm\""),
                "vm:8");
    ck_assert_int_eq(read_with(variables, ALLOCATION_FLUX), 0);
    ck_assert_str_eq(flux_asked, "flux job info f3K R");
    allocation_free(&allocation);
}
END_TEST

static const struct {
    const char *says, *text;
} flux_bads[] = {
    {NULL, "FLUX_URI is set: there is no program flux in PATH"},
    {"", "FLUX_URI is set, but flux resource R said: "},
    {"flux-resource: ERROR: x\nmore\n",
     "FLUX_URI is set, but flux resource R said: flux-resource: ERROR: x"},
    {"{", "FLUX_URI is set, but flux resource R said: {"},
    {"{\"version\": 2}", "flux: its list of resources is malformed: its "
                         "version is not 1; give -H, or --allocation none"},
    {"{\"version\": 1}", "flux: names no host"},
    {R("", "\"a\""), "flux: its list of resources is malformed: \"R_lite\"; "
                     "give -H, or --allocation none"},
    {R(RANK("0-", "\"core\": \"0\""), "\"a\""),
     "flux: its list of resources is malformed: \"rank\"; give -H, or "
     "--allocation none"},
    {R(RANK("0-99999", "\"core\": \"0\""), "\"a\""),
     "flux: its list of resources is malformed: more than 65536 hosts; give "
     "-H, or --allocation none"},
    {R(RANK("0", "\"core\": \"3-1\""), "\"a\""),
     "flux: its list of resources is malformed: \"R_lite\"; give -H, or "
     "--allocation none"},
    {R(RANK("0-2", "\"core\": \"0\""), "\"a\",\"b\""),
     "flux: its list of resources is malformed: \"nodelist\" has not one host "
     "for each rank; give -H, or --allocation none"},
    {R(RANK("0", "\"core\": \"0\""), "\"a;b\""),
     "flux: column 2: ';' is not allowed in a host name; use letters, digits, "
     "'.', '-' and '_'"},
};

START_TEST(test_flux_bads)
{
    ck_assert_int_lt(read_flux(flux_bads[_i].says), 0);
    ck_assert_str_eq(err.text, flux_bads[_i].text);
    ck_assert_uint_eq(allocation.hosts.count, 0);
    allocation_free(&allocation);
}
END_TEST

/* A batch system that is named is the only one that counts. */
START_TEST(test_choice)
{
    char slurm[] = "SLURM_JOB_NODELIST=a", lsf[] = "LSB_MCPU_HOSTS=b 2",
         *variables[] = {slurm, lsf, NULL};
    struct hb_strv env = HB_STRV_INIT;

    ck_assert_int_eq(read_with(variables, ALLOCATION_LSF), 0);
    ck_assert_str_eq(show(&allocation.hosts), "b:2");
    allocation_free(&allocation);
    ck_assert_int_eq(read_with(variables, ALLOCATION_NONE), 0);
    ck_assert_ptr_null(allocation.system);
    ck_assert_int_lt(read_with(variables, ALLOCATION_PBS), 0);
    ck_assert_str_eq(err.text, "this is no job of PBS: PBS_NODEFILE is not "
                               "set");
    allocation_free(&allocation);

    ck_assert(!allocation_is_present(&env));
    hb_must(hb_strv_add(&env, lsf));
    ck_assert(allocation_is_present(&env));
    hb_strv_free(&env);
}
END_TEST

struct described {
    const char *variables[VARIABLES_MAX];
    const char *text;
};

static const struct described descriptions[] = {
    {{"SLURM_JOB_NODELIST=node[01-02],x", "SLURM_TASKS_PER_NODE=2(x3)",
      "SLURM_JOB_ID=17", "SLURM_GPUS_ON_NODE=4",
      "SLURM_JOB_END_TIME=1700005400"},
     "Slurm job 17: 3 hosts (node[01-02],x), 6 slots, 4 GPUs on this host; it "
     "ends at 2023-11-14 23:43:20, in 1 h 30 min"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_GPUS_PER_NODE=a100:1,v100:1",
      "SLURM_GPUS_ON_NODE=3", "SLURM_JOB_END_TIME=1700000059"},
     "the Slurm job: 1 host (a), 1 slot, 2 GPUs on each host; it ends at "
     "2023-11-14 22:14:19, in 59 s"},
    {{"SLURM_JOB_NODELIST=a", "SLURM_GPUS_ON_NODE=x", "SLURM_JOB_ID=1\033",
      "SLURM_JOB_END_TIME=soon"},
     "Slurm job 1?: 1 host (a), 1 slot"},
    {{"LSB_MCPU_HOSTS=a 4", "LSB_JOBID=3"}, "LSF job 3: 1 host (a), 4 slots"},
};

START_TEST(test_describe)
{
    char *text;

    setenv("TZ", "UTC", 1);
    ck_assert_int_eq(
        read_with((char *const *)(uintptr_t)descriptions[_i].variables,
                  ALLOCATION_AUTO),
        0);
    text = allocation_describe(&allocation, 1700000000);
    ck_assert_str_eq(text, descriptions[_i].text);
    hb_free(text);
    allocation_free(&allocation);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("allocation");
    TCase *t = tcase_create("allocation");

    tcase_add_loop_test(t, test_goods, 0, (int)COUNT(goods));
    tcase_add_loop_test(t, test_bads, 0, (int)COUNT(bads));
    tcase_add_test(t, test_files);
    tcase_add_test(t, test_flux);
    tcase_add_loop_test(t, test_flux_bads, 0, (int)COUNT(flux_bads));
    tcase_add_test(t, test_choice);
    tcase_add_loop_test(t, test_describe, 0, (int)COUNT(descriptions));
    suite_add_tcase(s, t);
    return unit_run(s);
}
