/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold_end PID: traces the process PID and, when it dies, keeps it from ending,
 * as the kernel does while it writes a core or frees much memory.  Prints
 * "traced", then "holds" when the process dies.  On SIGUSR1, lets it end.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

/* Lets the process run until it dies.  Returns 0, or -1 if it has ended. */
static int follow(pid_t pid)
{
    int status, signo;

    for (;;) {
        if (waitpid(pid, &status, __WALL) < 0 || !WIFSTOPPED(status))
            return -1;
        if (status >> 16 == PTRACE_EVENT_EXIT)
            return 0;
        signo = status >> 16 ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_CONT, pid, NULL, (void *)(long)signo);
    }
}

int main(int argc, char **argv)
{
    pid_t pid = argc > 1 ? atoi(argv[1]) : 0;
    sigset_t set;
    int signo;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (pid <= 0 ||
        ptrace(PTRACE_SEIZE, pid, NULL, (void *)(long)PTRACE_O_TRACEEXIT) < 0) {
        perror("hold_end");
        return 2;
    }
    say("traced");
    if (follow(pid) < 0)
        return 1;
    say("holds");
    sigwait(&set, &signo);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    return 0;
}
