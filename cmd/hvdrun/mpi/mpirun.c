/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun --mpi; see mpi.h. */
#include "cmd/hvdrun/mpi/mpirun.h"

#include "cmd/hvdrun/host_plan.h"
#include "cmd/hvdrun/mpi/mpi_command.h"
#include "cmd/hvdrun/run_job.h"
#include "lib/base/alloc.h"
#include "lib/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct mpi {
    const struct options *options;
    struct mpi_launcher launcher;
    struct hostlist hosts;
    struct host_origin origin; /* of the hosts */
    struct plan plan;
    struct mpi_command command;
};

static int count_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

static int prepare(struct mpi *m, const struct hb_log *log,
                   struct hb_error *err)
{
    char hostname[HOST_NAME_MAX + 1] = "localhost";
    struct mpi_job job = {.options = m->options,
                          .launcher = &m->launcher,
                          .plan = &m->plan,
                          .hostname = hostname,
                          .inherited = environ,
                          .root = geteuid() == 0,
                          .cpus = count_cpus()};
    int rc = 0;

    /* mpirun takes the hosts of the batch system itself, if it knows the number
     * of ranks. */
    if (!m->options->hosts && !m->options->hostfile && m->options->num_proc &&
        mpi_in_allocation(environ))
        job.plan = NULL;
    else
        rc = host_plan_read(m->options, "localhost", log, &m->hosts, &m->origin,
                            err);
    if (rc == 0 && job.plan)
        rc = host_plan_make(m->options, &m->hosts, &m->origin, &m->plan, err);
    if (rc == 0)
        rc = mpi_find(&m->launcher, err);
    gethostname(hostname, sizeof(hostname) - 1);
    return rc < 0 ? rc : mpi_compose(&job, &m->command, err);
}

static void mpi_fini(struct mpi *m)
{
    mpi_command_fini(&m->command);
    mpi_launcher_fini(&m->launcher);
    plan_free(&m->plan);
    hostlist_free(&m->hosts);
    hb_free(m->origin.name);
}

static int become(struct mpi *m, const struct hb_log *log, struct hb_error *err)
{
    struct hb_buf text = HB_BUF_INIT;

    if (mpi_command_text(m->options, &m->command, &text) == 0)
        hb_log(log, HB_LOG_INFO, "%s %s: %s", mpi_kind_name(m->launcher.kind),
               m->launcher.version, hb_buf_data(&text));
    hb_buf_free(&text);
    if (m->command.no_stdin) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (fd < 0 || dup2(fd, STDIN_FILENO) < 0)
            return hb_error_sys(err, errno, "/dev/null");
        close(fd);
    }
    fflush(NULL);
    execve(m->launcher.path, m->command.argv.items, m->command.env.items);
    return hb_error_sys(err, errno, "%s", m->launcher.path);
}

static int print(struct mpi *m, const struct hb_log *log, struct hb_error *err)
{
    struct hb_buf text = HB_BUF_INIT;
    int rc = mpi_command_text(m->options, &m->command, &text);

    (void)log;
    if (rc < 0)
        rc = hb_error_set(err, HVD_ENOMEM, "out of memory");
    else if (puts(hb_buf_data(&text)) < 0 || fflush(stdout) != 0)
        rc = hb_error_sys(err, errno, "write to stdout");
    hb_buf_free(&text);
    return rc;
}

/* Composes the command and calls `use` with it; returns hvdrun's exit code. */
static int run(const struct options *o, const struct hb_log *log,
               int (*use)(struct mpi *m, const struct hb_log *log,
                          struct hb_error *err))
{
    struct mpi m = {.options = o, .command = MPI_COMMAND_INIT};
    struct hb_error err = HB_ERROR_INIT;
    int code = 0;

    if (prepare(&m, log, &err) < 0)
        code = EXIT_USAGE;
    else if (use(&m, log, &err) < 0)
        code = JOB_EXIT_LAUNCHER;
    if (code)
        hb_log(log, HB_LOG_ERROR, "%s", err.text);
    mpi_fini(&m);
    return code;
}

int mpi_run(const struct options *o, const struct hb_log *log)
{
    return run(o, log, become);
}

int mpi_dry(const struct options *o, const struct hb_log *log)
{
    return run(o, log, print);
}
