/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun: starts the ranks of a distributed program and ends them.  This file:
 * descriptors 0 to 2, the options, and the choice of what to do.  Exit codes:
 * the job's (lib/job/job.h), 2 for wrong use, 125 if hvdrun itself failed.
 */
#include "cmd/hvdrun/check_build.h"
#include "cmd/hvdrun/compat.h"
#include "cmd/hvdrun/mpi/mpirun.h"
#include "cmd/hvdrun/reach.h"
#include "cmd/hvdrun/run_job.h"
#include "cmd/hvdrun/tools/doctor.h"
#include "cmd/hvdrun/tools/jobs.h"
#include "lib/base/alloc.h"
#include "lib/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Opens descriptors 0 to 2 if closed, or a socket would get such a number. */
static int open_missing(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

/* Undoes what a caller may have left: blocked signals, and an ignored SIGCHLD,
 * which would hide how the agent ended. */
static void set_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
}

static int print(char *text, const struct hb_log *log)
{
    int rc = 0;

    if (fputs(text, stdout) < 0 || fflush(stdout) != 0) {
        hb_log(log, HB_LOG_ERROR, "write to stdout: %s", strerror(errno));
        rc = JOB_EXIT_LAUNCHER;
    }
    hb_free(text);
    return rc;
}

static int print_check_build(const struct options *o, const struct hb_log *log)
{
    char *dir = run_program_dir();
    char *text = o->json ? check_build_json(dir) : check_build_text(dir);

    hb_free(dir);
    return print(text, log);
}

static void log_remarks(const struct options *o, const struct hb_log *log)
{
    for (size_t i = 0; i < o->warnings.count; i++)
        hb_log(log, HB_LOG_WARNING, "%s", o->warnings.items[i]);
    for (size_t i = 0; i < o->notes.count; i++)
        hb_log(log, HB_LOG_INFO, "%s", o->notes.items[i]);
}

/* Returns the version; to callers of horovodrun first the one they know. */
static char *version(const struct options *o)
{
    return o->horovodrun
               ? hb_xstrdup(COMPAT_VERSION " (hvdrun " HVD_VERSION ")\n")
               : hb_xstrdup("hvdrun " HVD_VERSION "\n");
}

static int dispatch(const struct options *o, const struct hb_log *log)
{
    switch (o->action) {
    case OPTIONS_HELP:
        return print(options_help(), log);
    case OPTIONS_HELP_ALL:
        return print(options_help_all(), log);
    case OPTIONS_COMPLETION:
        return print(options_completion(o->shell), log);
    case OPTIONS_VERSION:
        return print(version(o), log);
    case OPTIONS_CHECK_BUILD:
        return print_check_build(o, log);
    case OPTIONS_DRY_RUN:
        return o->mpi ? mpi_dry(o, log) : run_dry(o, log);
    case OPTIONS_PS:
        return jobs_ps(o, log);
    case OPTIONS_KILL:
        return jobs_kill(o, log);
    case OPTIONS_CLEAN:
        return jobs_clean(o, log);
    case OPTIONS_DRAIN:
        return jobs_drain(o, log);
    case OPTIONS_DOCTOR:
        return doctor_run(o, log);
    case OPTIONS_RUN:
        break;
    }
    return o->mpi ? mpi_run(o, log) : run_job(o, log);
}

int main(int argc, char *argv[])
{
    struct hb_log log = {.program = "hvdrun", .level = HB_LOG_WARNING};
    struct hb_error err = HB_ERROR_INIT;
    struct options o;
    int rc;

    json_set_alloc_funcs(hb_xmalloc, hb_free_wiped);
    set_signals();
    if (open_missing() < 0) {
        hb_log(&log, HB_LOG_ERROR, "open /dev/null: %s", strerror(errno));
        return JOB_EXIT_LAUNCHER;
    }
    options_init(&o);
    if (options_parse(&o, argc, argv, &err) < 0 ||
        reach_check_files(&o, &err) < 0 || compat_find(&o, &err) < 0) {
        hb_log(&log, HB_LOG_ERROR, "%s", err.text);
        options_fini(&o);
        return EXIT_USAGE;
    }
    log.level = o.log_level;
    log.flags = o.log_timestamp ? HB_LOG_TIMESTAMP : 0;
    log_remarks(&o, &log);
    rc = dispatch(&o, &log);
    options_fini(&o);
    return rc;
}
