/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun --mpi: which mpirun is installed, and the command line for it. */
#include "cmd/hvdrun/mpi/mpi_command.h"
#include "cmd/hvdrun/mpi/mpi_find.h"
#include "cmd/hvdrun/options/options.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static char *environment[] = {"PATH=/bin",
                              "HOME=/home/me",
                              "SSH_AUTH_SOCK=/tmp/agent",
                              "CUDA_VISIBLE_DEVICES=3",
                              "OMPI_MCA_pml=ob1",
                              "PMIX_MCA_gds=hash",
                              "PMIX_RANK=7",
                              "HVD_RANK=7",
                              "BASH_FUNC_f%%=() { :; }",
                              NULL};
static struct options o;
static struct hostlist hosts;
static struct plan plan;
static struct mpi_command command;
static struct hb_buf line;
static struct hb_error err;
static int allocated, root, cpus;
static char **inherited;

static void setup(void)
{
    hb_error_clear(&err);
    allocated = root = cpus = 0;
    inherited = environment;
}

static void clear(void)
{
    mpi_command_fini(&command);
    command.no_stdin = 0;
    plan_free(&plan);
    hostlist_free(&hosts);
    options_fini(&o);
    hb_buf_free(&line);
    hb_error_clear(&err);
}

/* Splits at blanks; "~" stands for a blank inside a word. */
static void parse(const char *text)
{
    struct hb_strv argv = HB_STRV_INIT;

    hb_strv_split(&argv, text, " ");
    for (size_t i = 0; i < argv.count; i++) {
        for (char *p = argv.items[i]; *p; p++)
            *p = *p == '~' ? ' ' : *p;
    }
    options_init(&o);
    ck_assert_msg(options_parse(&o, (int)argv.count, argv.items, &err) == 0,
                  "%s", err.text);
    hb_strv_free(&argv);
}

static void make_plan(void)
{
    const struct plan_options p = {.num_proc = o.num_proc,
                                   .map = o.map,
                                   .npernode = o.npernode,
                                   .oversubscribe = o.oversubscribe};
    char here[32];

    snprintf(here, sizeof(here), "localhost:%d", o.num_proc);
    ck_assert_int_eq(hostlist_parse(o.hosts ? o.hosts : here, &hosts, &err), 0);
    ck_assert_msg(plan_make(&hosts, &p, &plan, &err) == 0, "%s", err.text);
}

static int compose(const char *version, const char *text)
{
    struct mpi_launcher m = {.name = "mpirun"};
    struct mpi_job job = {.options = &o,
                          .launcher = &m,
                          .hostname = "here",
                          .inherited = inherited,
                          .root = root,
                          .cpus = cpus};
    int rc;

    clear();
    ck_assert_int_eq(mpi_identify("mpirun", version, &m, NULL), 0);
    parse(text);
    if (!allocated) {
        make_plan();
        job.plan = &plan;
    }
    rc = mpi_compose(&job, &command, &err);
    hb_free(m.version);
    if (rc == 0)
        ck_assert_int_eq(mpi_command_text(&o, &command, &line), 0);
    return rc;
}

/* ---- Which mpirun it is ---- */

static const char openmpi4[] =
    "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n";
static const char openmpi5[] = "mpirun (Open MPI) 5.0.3\n";
static const char mpich[] = "HYDRA build details:\n"
                            "    Version:                    4.0.2\n"
                            "    Release Date:               Thu Apr  7\n";

static const struct {
    const char *text;
    enum mpi_kind kind;
    int major;
    const char *version;
} known[] = {
    {openmpi4, MPI_OPENMPI, 4, "4.1.4"},
    {openmpi5, MPI_OPENMPI, 5, "5.0.3"},
    {"mpirun.openmpi (OpenRTE) 4.1.4\n", MPI_OPENMPI, 4, "4.1.4"},
    {"mpirun (Open MPI) 5.1.0a1\n", MPI_OPENMPI, 5, "5.1.0a1"},
    {mpich, MPI_MPICH, 4, "4.0.2"},
};

START_TEST(identifies)
{
    struct mpi_launcher m = {.name = NULL};

    ck_assert_int_eq(mpi_identify("mpirun", known[_i].text, &m, &err), 0);
    ck_assert_int_eq(m.kind, known[_i].kind);
    ck_assert_int_eq(m.major, known[_i].major);
    ck_assert_str_eq(m.version, known[_i].version);
    hb_free(m.version);
}
END_TEST

static const struct {
    const char *text, *why;
} others[] = {
    {"", "/x/mpirun is not known ('')"},
    {"srun 22.05\n", "/x/mpirun is not known ('srun 22.05')"},
    {"Open MPI\n", "/x/mpirun is not known ('Open MPI')"},
    {"\033[31mred\n", "/x/mpirun is not known ('?[31mred')"},
    {"Intel(R) MPI Library for Linux* OS, Version 2021.5 Build 2021\n",
     "/x/mpirun is of Intel MPI 2021.5; "},
    {"mpirun (IBM Spectrum MPI) 10.3.1\n",
     "/x/mpirun is of IBM Spectrum MPI 10.3.1; "},
    {"mpirun (Open MPI) 3.1.6\n", "/x/mpirun is of Open MPI 3.1.6; "},
    {"HYDRA build details:\n  Version: 1.4.1\n",
     "/x/mpirun is of MPICH 1.4.1; "},
};

START_TEST(others_are_refused)
{
    struct mpi_launcher m = {.name = NULL};

    ck_assert_int_eq(mpi_identify("/x/mpirun", others[_i].text, &m, &err),
                     -HVD_EUNSUPPORTED);
    ck_assert_msg(strncmp(err.text, others[_i].why, strlen(others[_i].why)) ==
                      0,
                  "%s", err.text);
    ck_assert_ptr_null(strchr(err.text, '\n'));
    ck_assert_ptr_nonnull(strstr(err.text, "HVD_MPIRUN"));
}
END_TEST

/* ---- Command lines ---- */

#define NAMES4 "-x PATH -x PYTHONUNBUFFERED"
#define NAMES "-genvlist PATH,PYTHONUNBUFFERED"
#define PLACE "--bind-to none --map-by slot"

static const struct {
    const char *version, *options, *line;
} lines[] = {
    {openmpi4, "-np 2 prog a~b",
     "mpirun -np 2 -H localhost:2 " PLACE " --tag-output --stdin none " NAMES4
     " prog 'a b'"},
    {openmpi4, "-H a:2,b:3 --no-tag-output --stdin 4 prog",
     "mpirun -np 5 -H a:2,b:3 " PLACE " --stdin 4 " NAMES4 " prog"},
    {openmpi4, "-np 3 -H a:2,b:3 --map-by node --bind-to core prog",
     "mpirun -np 3 -H a:2,b:1 --bind-to core:overload-allowed --map-by node "
     "--tag-output --stdin none " NAMES4 " prog"},
    {openmpi4, "-np 4 -H a:1,b:1 --oversubscribe --bind-to numa prog",
     "mpirun -np 4 -H a:2,b:2 --oversubscribe --bind-to numa:overload-allowed "
     "--map-by slot --tag-output --stdin none " NAMES4 " prog"},
    {openmpi4,
     "-H a,b -p 2222 -i /k --ssh-user u --ssh-config /c --ssh-known-hosts /h "
     "--network-interfaces eth0,10.0.0.0/8 prog",
     "mpirun -np 2 -H a:1,b:1 " PLACE " -mca plm_rsh_args "
     "'-p 2222 -l u -i /k -F /c -o UserKnownHostsFile=/h' "
     "-mca oob_tcp_if_include eth0,10.0.0.0/8 "
     "-mca btl_tcp_if_include eth0,10.0.0.0/8 "
     "--tag-output --stdin none " NAMES4 " prog"},
    {openmpi5,
     "-H a,b -p 2222 --network-interfaces 10.0.0.0/8 "
     "--prefix-output-with-timestamp --output-filename out prog",
     "mpirun -np 2 -H a:1,b:1 " PLACE " --prtemca plm_ssh_args '-p 2222' "
     "--prtemca prte_if_include 10.0.0.0/8 "
     "--mca btl_tcp_if_include 10.0.0.0/8 "
     "--output tag,timestamp,dir=out --stdin none " NAMES4 " prog"},
    {openmpi5, "-np 2 --no-tag-output --stdin all prog",
     "mpirun -np 2 -H localhost:2 " PLACE " --stdin all " NAMES4 " prog"},
    {openmpi4,
     "-np 1 --wdir /w --timeout 1.5 --prefix-output-with-timestamp "
     "--output-filename out prog",
     "mpirun -np 1 -H localhost:1 " PLACE " --tag-output --timestamp-output "
     "--output-filename out:nojobid --stdin none --wdir /w --timeout 2 " NAMES4
     " prog"},
    {openmpi4,
     "-np 1 --binding-args --bind-to~'l3cache' --mpi-args -q~\"a~b\" prog",
     "mpirun -np 1 -H localhost:1 --bind-to l3cache --tag-output --stdin "
     "none " NAMES4 " -q 'a b' prog"},
    {openmpi4, "-H alice@a:1,alice@b:1,localhost:1 prog",
     "mpirun -np 3 -H a:1,b:1,localhost:1 " PLACE
     " -mca plm_rsh_args '-l alice' --tag-output --stdin none " NAMES4 " prog"},
    {openmpi4, "-np 1 --cycle-time-ms 2 --start-timeout 2500ms prog",
     "HVD_CYCLE_TIME=2 HOROVOD_CYCLE_TIME=2 HVD_START_TIMEOUT=2500ms "
     "HOROVOD_START_TIMEOUT=2500ms mpirun -np 1 -H localhost:1 " PLACE
     " -mca plm_rsh_args '-o ConnectTimeout=3' --tag-output --stdin none "
     "-x HOROVOD_CYCLE_TIME -x HOROVOD_START_TIMEOUT -x HVD_CYCLE_TIME "
     "-x HVD_START_TIMEOUT " NAMES4 " prog"},
    {mpich, "-np 2 prog a~b",
     "mpirun -n 2 -hosts localhost:2 -l " NAMES " prog 'a b' </dev/null"},
    {mpich,
     "-H a:2,b:3 --no-tag-output --stdin 0 --bind-to core --wdir /w "
     "--network-interface eth0 prog",
     "mpirun -n 5 -hosts a:2,b:3 -bind-to core -iface eth0 -wdir /w "
     "-genvlist GLOO_SOCKET_IFNAME,NCCL_SOCKET_IFNAME,PATH,PYTHONUNBUFFERED "
     "prog"},
    {mpich, "-H a:2,b:2 --map-by node -p 22 --timeout 1 prog",
     "HYDRA_LAUNCHER_EXTRA_ARGS='-p 22' MPIEXEC_TIMEOUT=1 mpirun -n 4 "
     "-hosts a:2,b:2 -ppn 1 -l " NAMES " prog </dev/null"},
    {mpich, "-np 1 --binding-args -bind-to~user:0 --mpi-args -info prog",
     "mpirun -n 1 -hosts localhost:1 -bind-to user:0 -l " NAMES
     " -info prog </dev/null"},
};

static char *with_mpi(const char *options)
{
    return hb_xasprintf("hvdrun --mpi %s", options);
}

START_TEST(composes)
{
    char *text = with_mpi(lines[_i].options);

    ck_assert_msg(compose(lines[_i].version, text) == 0, "%s", err.text);
    ck_assert_str_eq(hb_buf_data(&line), lines[_i].line);
    hb_free(text);
}
END_TEST

START_TEST(root_is_allowed)
{
    root = 1;
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 1 prog"), 0);
    ck_assert_str_eq(command.argv.items[1], "--allow-run-as-root");
    ck_assert_int_eq(compose(mpich, "hvdrun --mpi -np 1 prog"), 0);
    ck_assert_str_eq(command.argv.items[1], "-n");
}
END_TEST

/* No tree of daemons: it would need ssh between the hosts. */
START_TEST(many_hosts)
{
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -H n[1-64] prog"), 0);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&line),
                                 " -mca plm_rsh_no_tree_spawn 1 "
                                 "-mca plm_rsh_num_concurrent 64 "));
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -H n[1-63] prog"), 0);
    ck_assert_ptr_null(strstr(hb_buf_data(&line), "tree_spawn"));
}
END_TEST

START_TEST(hosts_of_an_allocation)
{
    static char *slurm[] = {"SLURM_JOB_ID=7", NULL};

    allocated = 1;
    ck_assert_int_eq(mpi_in_allocation(slurm), 1);
    ck_assert_int_eq(mpi_in_allocation(environment), 0);
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 4 prog"), 0);
    ck_assert_str_eq(hb_buf_data(&line),
                     "mpirun -np 4 " PLACE " --tag-output --stdin none " NAMES4
                     " prog");
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 4 --npernode 2 prog"),
                     0);
    ck_assert_ptr_nonnull(
        strstr(hb_buf_data(&line), "mpirun -np 4 -N 2 --bind-to none --tag"));
    ck_assert_int_eq(compose(mpich, "hvdrun --mpi -np 4 --npernode 2 prog"), 0);
    ck_assert_str_eq(hb_buf_data(&line),
                     "mpirun -n 4 -ppn 2 -l " NAMES " prog </dev/null");
}
END_TEST

/* ---- The environment ---- */

static const char *variable(const char *name)
{
    return hb_env_get(&command.env, name);
}

START_TEST(values_are_in_the_environment_only)
{
    static const char *const versions[] = {openmpi4, openmpi5, mpich};

    for (int i = 0; i < COUNT(versions); i++) {
        ck_assert_int_eq(compose(versions[i],
                                 "hvdrun --mpi -np 1 -x TOKEN=s3cret~word "
                                 "-x CUDA_VISIBLE_DEVICES prog"),
                         0);
        ck_assert_ptr_null(strstr(hb_buf_data(&line), "s3cret"));
        ck_assert_ptr_nonnull(strstr(hb_buf_data(&line), "TOKEN"));
        ck_assert_str_eq(variable("TOKEN"), "s3cret word");
        ck_assert_str_eq(variable("PYTHONUNBUFFERED"), "1");
    }
}
END_TEST

/* mpirun keeps the variables that it needs; those that another launcher set for
 * one process are removed. */
START_TEST(mpirun_has_its_own)
{
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 1 prog"), 0);
    ck_assert_str_eq(variable("HOME"), "/home/me");
    ck_assert_str_eq(variable("SSH_AUTH_SOCK"), "/tmp/agent");
    ck_assert_str_eq(variable("OMPI_MCA_pml"), "ob1");
    ck_assert_str_eq(variable("PMIX_MCA_gds"), "hash");
    ck_assert_str_eq(variable("CUDA_VISIBLE_DEVICES"), "3");
    ck_assert_ptr_null(variable("PMIX_RANK"));
    ck_assert_ptr_null(variable("HVD_RANK"));
    ck_assert_ptr_null(strstr(hb_buf_data(&line), "CUDA_VISIBLE_DEVICES"));
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 1 --no-env prog"), 0);
    ck_assert_str_eq(variable("SSH_AUTH_SOCK"), "/tmp/agent");
    ck_assert_str_eq(variable("HOME"), "/home/me");
    ck_assert_ptr_null(variable("OMPI_MCA_pml"));
    ck_assert_ptr_null(variable("CUDA_VISIBLE_DEVICES"));
}
END_TEST

/* Open MPI would let ranks that share a processor spin. */
START_TEST(more_ranks_than_processors)
{
    static const char yield[] = "OMPI_MCA_mpi_yield_when_idle";
    static char *own[] = {"OMPI_MCA_mpi_yield_when_idle=0", NULL};

    cpus = 2;
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 2 prog"), 0);
    ck_assert_ptr_null(variable(yield));
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -H n1:4 prog"), 0);
    ck_assert_ptr_null(variable(yield));
    ck_assert_int_eq(compose(openmpi5, "hvdrun --mpi -np 3 prog"), 0);
    ck_assert_str_eq(variable(yield), "1");
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -H n1:4,localhost:3 prog"),
                     0);
    ck_assert_str_eq(variable(yield), "1");
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&line), yield));
    ck_assert_int_eq(compose(mpich, "hvdrun --mpi -np 3 prog"), 0);
    ck_assert_ptr_null(variable(yield));
    inherited = own;
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 3 prog"), 0);
    ck_assert_str_eq(variable(yield), "0");
}
END_TEST

/* Another mpirun's variables for one rank are removed; settings stay. */
START_TEST(inside_a_rank)
{
    static char *inner[] = {"OMPI_COMM_WORLD_RANK=0",
                            "OMPI_MCA_btl=self,tcp",
                            "OMPI_MCA_ess=^singleton",
                            "OMPI_ARGV=x",
                            "OMPI_MCA_orte_precondition_transports=1",
                            "PMIX_RANK=0",
                            "PMIX_MCA_gds=hash",
                            "PATH=/bin",
                            NULL};

    inherited = inner;
    ck_assert_int_eq(compose(openmpi4, "hvdrun --mpi -np 1 prog"), 0);
    ck_assert_str_eq(variable("OMPI_MCA_btl"), "self,tcp");
    ck_assert_ptr_null(variable("OMPI_COMM_WORLD_RANK"));
    ck_assert_ptr_null(variable("OMPI_MCA_ess"));
    ck_assert_ptr_null(variable("OMPI_ARGV"));
    ck_assert_ptr_null(variable("OMPI_MCA_orte_precondition_transports"));
    ck_assert_ptr_null(variable("PMIX_RANK"));
    ck_assert_str_eq(variable("PMIX_MCA_gds"), "hash");
}
END_TEST

/* ---- What is refused ---- */

static const struct {
    const char *version, *options, *text;
} refusals[] = {
    {openmpi4, "-np 1 --launcher ssh2 prog",
     "--launcher ssh2: with --mpi, mpirun reaches hosts, by the ssh program"},
    {openmpi4, "-np 1 --bind-to core --binding-args -x prog",
     "--binding-args takes the place of --bind-to and --map-by; give one or "
     "the other"},
    {openmpi4, "-np 1 --map-by node --binding-args -x prog",
     "--binding-args takes the place of --bind-to and --map-by; give one or "
     "the other"},
    {openmpi4, "-np 1 --mpi-args \"a prog", "--mpi-args: a \" is not closed"},
    {mpich, "-np 1 --binding-args 'a prog",
     "--binding-args: a ' is not closed"},
    {openmpi4, "-np 1 prog a : b",
     "argument ':' of the command: mpirun would take it for the end of the "
     "command"},
    {openmpi4, "-np 1 -- -prog",
     "command '-prog': mpirun would take it for an option; write ./-prog"},
    {openmpi4, "-np 1 -x a*=1 prog",
     "-x 'a*': mpirun cannot pass on a variable of this name"},
    {mpich, "-np 1 -x a,b=1 prog",
     "-x 'a,b': mpirun cannot pass on a variable of this name"},
    {openmpi4, "-H [::1]:2 prog",
     "host ::1: mpirun takes no IPv6 address; give it a name, in /etc/hosts "
     "for one"},
    {openmpi4, "-H a@x,b@y prog",
     "hosts x and y: mpirun logs in as one user and at one port; put them "
     "into ~/.ssh/config"},
    {openmpi4, "-H x,b@y prog",
     "hosts x and y: mpirun logs in as one user and at one port; put them "
     "into ~/.ssh/config"},
    {openmpi4, "-np 1 -i /a~b prog",
     "--ssh-identity-file '/a b': mpirun cannot pass this on to ssh; put it "
     "into ~/.ssh/config"},
    {openmpi4, "-np 1 --output-filename a:b prog",
     "--output-filename 'a:b': Open MPI cannot take a name with a comma or a "
     "colon"},
    {openmpi4, "-np 1 --stdin all prog",
     "--stdin all: Open MPI before version 5 hangs then; let one rank read"},
    {mpich, "-np 2 --stdin all prog",
     "--stdin: MPICH's mpiexec lets rank 0 read, or none"},
    {mpich, "-np 2 --stdin 1 prog",
     "--stdin: MPICH's mpiexec lets rank 0 read, or none"},
    {mpich, "-np 1 --prefix-output-with-timestamp prog",
     "--prefix-output-with-timestamp: MPICH's mpiexec cannot tell the time of "
     "a line"},
    {mpich, "-np 1 --output-filename a prog",
     "--output-filename: MPICH's mpiexec cannot write files and the terminal "
     "both; redirect its output, or see -outfile-pattern for --mpi-args"},
    {mpich, "-np 1 --network-interfaces eth0,eth1 prog",
     "--network-interfaces: MPICH's mpiexec takes one interface, by name"},
    {mpich, "-np 1 --network-interfaces 10.0.0.0/8 prog",
     "--network-interfaces: MPICH's mpiexec takes one interface, by name"},
    {mpich, "-H a:2,b:1 --map-by node prog",
     "--map-by node: MPICH's mpiexec needs as many ranks on every host for "
     "that"},
};

START_TEST(refuses)
{
    char *text = with_mpi(refusals[_i].options);

    ck_assert_int_lt(compose(refusals[_i].version, text), 0);
    ck_assert_str_eq(err.text, refusals[_i].text);
    hb_free(text);
}
END_TEST

/* ---- Out of memory ---- */

static int attempt(void *arg)
{
    const struct mpi_job *job = arg;
    struct mpi_command c = MPI_COMMAND_INIT;
    struct hb_error why = HB_ERROR_INIT;
    int rc = mpi_compose(job, &c, &why);

    ck_assert_int_eq(rc, rc ? -HVD_ENOMEM : 0);
    mpi_command_fini(&c);
    return rc;
}

START_TEST(no_memory)
{
    static const struct mpi_launcher launchers[] = {
        {.name = "mpirun", .kind = MPI_OPENMPI, .major = 4},
        {.name = "mpirun", .kind = MPI_OPENMPI, .major = 5},
        {.name = "mpirun", .kind = MPI_MPICH, .major = 4},
    };

    parse("hvdrun --mpi -H a:2,u@b:2 -p 3 --network-interfaces eth0 "
          "--timeout 3 -x A=b --mpi-args x --binding-args y prog");
    make_plan();
    for (int i = 0; i < COUNT(launchers); i++) {
        struct mpi_job job = {.options = &o,
                              .launcher = &launchers[i],
                              .plan = &plan,
                              .hostname = "a",
                              .inherited = environment};

        unit_fail_each(attempt, &job);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mpi_command");
    TCase *t = tcase_create("mpi_command");

    tcase_add_checked_fixture(t, setup, clear);
    tcase_add_loop_test(t, identifies, 0, COUNT(known));
    tcase_add_loop_test(t, others_are_refused, 0, COUNT(others));
    tcase_add_loop_test(t, composes, 0, COUNT(lines));
    tcase_add_test(t, root_is_allowed);
    tcase_add_test(t, many_hosts);
    tcase_add_test(t, hosts_of_an_allocation);
    tcase_add_test(t, values_are_in_the_environment_only);
    tcase_add_test(t, mpirun_has_its_own);
    tcase_add_test(t, more_ranks_than_processors);
    tcase_add_test(t, inside_a_rank);
    tcase_add_loop_test(t, refuses, 0, COUNT(refusals));
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return unit_run(s);
}
