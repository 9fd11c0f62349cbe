/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack of a rank, as eu-stack or gdb tells it, without blocking.
 *
 * The program gets no input and an environment of its own (no debuginfod:
 * nothing is fetched), has STACK_LIMIT_MS, and at most STACK_READ_BYTES of
 * what it prints are looked at.  Only a process of our own user is looked
 * at; the caller knows that the pid is its child's and not yet reaped.
 *
 * A debugger stops what it looks at.  If it has to be killed, or dies, the
 * process may stay stopped: unless it was before, it is continued.
 */
#ifndef HVD_AGENT_STACK_H
#define HVD_AGENT_STACK_H

#include "lib/base/buf.h"

#include <sys/types.h>
#include <uv.h>

enum {
    STACK_LIMIT_MS = 5000,
    STACK_READ_BYTES = 256 << 10,
    STACK_LINES_MAX = 48, /* that are kept */
    STACK_LINE_BYTES = 200,
};

struct stack;

struct stack_config {
    uv_loop_t *loop;
    pid_t pid;
    const char *path; /* PATH, for the programs; NULL: a default one */
    /* Once: found is 1 and text a stack, one line per frame, "#..." or
     * "thread ..."; or 0 and text says why there is none.  Not inside
     * stack_open, not after stack_close. */
    void (*on_done)(void *arg, int found, const char *text);
    void *arg;
};

/* NULL when it cannot even be begun; *why then is a constant string. */
struct stack *stack_open(const struct stack_config *config, const char **why);
/* After on_done, or before: kills the program.  Frees when the loop has run;
 * NULL is allowed. */
void stack_close(struct stack *s);

/* Keeps of a program's output what is a stack, into out: 1, or 0 and out
 * holds the last line that it said instead.  Pure. */
int stack_pick(const char *text, size_t len, struct hb_buf *out);

#endif
