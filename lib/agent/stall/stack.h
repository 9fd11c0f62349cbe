/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the stack of a rank with eu-stack or gdb, without blocking.
 *
 * The program gets no input and an environment of its own (no debuginfod:
 * nothing is fetched); it is limited to STACK_LIMIT_MS and STACK_READ_BYTES of
 * output.  Only processes of our own user are examined; the caller ensures that
 * pid is its child and not yet reaped.
 *
 * A debugger stops the process it examines.  If the debugger is killed or dies,
 * the process may stay stopped: when the debugger is dead, the process is
 * continued, unless it was stopped before.
 */
#ifndef HVD_AGENT_STACK_H
#define HVD_AGENT_STACK_H

#include <sys/types.h>
#include <uv.h>

enum {
    STACK_LIMIT_MS = 5000,
    STACK_READ_BYTES = 256 << 10,
    STACK_LINES_MAX = 48, /* most lines that are kept */
    STACK_LINE_BYTES = 200,
};

struct stack;

struct stack_config {
    uv_loop_t *loop;
    pid_t pid;
    const char *path; /* PATH, for the programs; NULL: a default one */
    /* Called once, not inside stack_open and not after stack_close.  found 1:
     * text is the stack, one line per frame, "#..." or "thread ...".  found 0:
     * text says why there is none. */
    void (*on_done)(void *arg, int found, const char *text);
    void *arg;
};

/* Starts taking a stack.  NULL if that fails at once; *why is then a constant
 * string. */
struct stack *stack_open(const struct stack_config *config, const char **why);
/* Kills the program if it still runs; may be called before or after on_done.
 * The memory is freed once the loop has run.  `s` may be NULL. */
void stack_close(struct stack *s);

#endif
