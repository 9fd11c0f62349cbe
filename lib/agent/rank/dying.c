/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of /proc for processes that are dying; see dying.h. */
#include "lib/agent/rank/dying.h"

#include "lib/base/env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* Fields of /proc/PID/stat; see proc_pid_stat(5). */
    STATE = 3,
    FLAGS = 9,
    UTIME = 14,
    STIME = 15,
    EXIT_CODE = 52,
    /* The kernel's flags of a thread (include/linux/sched.h). */
    PF_EXITING = 0x4,
    PF_SIGNALED = 0x400,
    STAT_MAX = 2048
};

/* No process uses more, and 2000 times as much fits an int64_t. */
#define TICKS_MAX (INT64_MAX / 4000)

/* Whether a file in /proc could be read. */
enum found { IS_GONE, IS_UNKNOWN, IS_READ };

/* Stores a field that is needed.  Returns 0, or negative if it is no number, or
 * one out of range. */
static int take_field(int field, const char *word, struct dying_stat *s)
{
    int64_t value;
    int rc = 0;

    switch (field) {
    case FLAGS:
        rc = hb_parse_i64(word, 0, UINT32_MAX, &value, NULL);
        s->is_leaving = rc == 0 && (value & (PF_EXITING | PF_SIGNALED));
        break;
    case UTIME:
    case STIME:
        rc = hb_parse_i64(word, 0, TICKS_MAX, &value, NULL);
        s->ticks += rc == 0 ? value : 0;
        break;
    case EXIT_CODE:
        rc = hb_parse_i64(word, 0, UINT16_MAX, &value, NULL);
        s->wait_status = rc == 0 ? (int)value : 0;
        break;
    default:
        break;
    }
    return rc;
}

int dying_parse(char *text, struct dying_stat *s)
{
    char *close = strrchr(text, ')'), *save = NULL, *word;
    int field = STATE;

    memset(s, 0, sizeof(*s));
    if (!close)
        return 0;
    for (word = strtok_r(close + 1, " \n", &save); word;
         word = strtok_r(NULL, " \n", &save), field++)
        if (take_field(field, word, s) < 0)
            return 0;
    return field > EXIT_CODE;
}

static enum found read_stat(const char *path, struct dying_stat *s)
{
    char text[STAT_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return errno == ENOENT || errno == ESRCH ? IS_GONE : IS_UNKNOWN;
    n = read(fd, text, sizeof(text) - 1);
    if (n < 0 && errno == ESRCH) {
        close(fd);
        return IS_GONE;
    }
    close(fd);
    if (n <= 0)
        return IS_UNKNOWN;
    text[n] = '\0';
    return dying_parse(text, s) ? IS_READ : IS_UNKNOWN;
}

/* Returns whether no thread of the process runs code of the program. */
static int all_leave(pid_t pid)
{
    char path[64];
    struct dying_stat s;
    struct dirent *entry;
    DIR *dir;
    int leave = 1;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    if (!dir)
        return 0;
    while (leave && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", (int)pid,
                 entry->d_name);
        switch (read_stat(path, &s)) {
        case IS_GONE:
            break;
        case IS_UNKNOWN:
            leave = 0;
            break;
        case IS_READ:
            leave = s.is_leaving;
            break;
        }
    }
    closedir(dir);
    return leave;
}

/* Returns whether the process's core is being written. */
static int writes_core(pid_t pid)
{
    char path[64], line[256];
    int writes = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && !writes && fgets(line, sizeof(line), f))
        writes = strcmp(line, "CoreDumping:\t1\n") == 0;
    if (f)
        fclose(f);
    return writes;
}

static void fill_info(siginfo_t *info, pid_t pid, int status)
{
    memset(info, 0, sizeof(*info));
    info->si_pid = pid;
    info->si_signo = SIGCHLD;
    if (WIFEXITED(status)) {
        info->si_code = CLD_EXITED;
        info->si_status = WEXITSTATUS(status);
    } else {
        info->si_code =
            WCOREDUMP(status) || writes_core(pid) ? CLD_DUMPED : CLD_KILLED;
        info->si_status = WTERMSIG(status);
    }
}

int dying_check(pid_t pid, siginfo_t *info, int64_t *cpu_ms)
{
    char path[64];
    struct dying_stat s;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (read_stat(path, &s) != IS_READ || !s.is_leaving || s.wait_status == 0 ||
        !all_leave(pid))
        return 0;
    fill_info(info, pid, s.wait_status);
    *cpu_ms = s.ticks * 1000 / sysconf(_SC_CLK_TCK);
    return 1;
}
