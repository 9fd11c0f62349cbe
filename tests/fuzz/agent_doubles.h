/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand-ins for the files of lib/agent that act on the machine.  A fuzzer that
 * includes this header is linked with them instead.  The stand-ins start no
 * process, do not read /proc and open no socket.
 */
#ifndef TESTS_FUZZ_AGENT_DOUBLES_H
#define TESTS_FUZZ_AGENT_DOUBLES_H

#include "lib/agent/query/agent_query.h"
#include "lib/agent/rank/tree.h"
#include "lib/agent/route/interfaces.h"
#include "lib/agent/route/route_impl.h"
#include "lib/agent/stall/stack.h"
#include "lib/base/alloc.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/query.h"
#include "tests/fuzz/fuzz.h"

int tree_read(pid_t root, struct tree *t)
{
    (void)root;
    (void)t;
    return 0;
}

int tree_read_all(struct tree *t)
{
    (void)t;
    return 0;
}

int tree_can_read(void)
{
    return 1;
}

void tree_free(struct tree *t)
{
    (void)t;
}

size_t tree_signal(const struct tree *t, int signo, const pid_t *skip_groups,
                   size_t group_count)
{
    (void)t;
    (void)skip_groups;
    (void)group_count;
    FUZZ_CHECK(signo > 0);
    return 0;
}

size_t tree_kill_round(void)
{
    return 0;
}

void tree_kill_marked(const char *entry)
{
    (void)entry;
}

int tree_has_children(void)
{
    return 0;
}

int tree_holds(pid_t root, pid_t pid)
{
    (void)root;
    (void)pid;
    return 0;
}

int tree_stat(pid_t pid, struct tree_proc *p)
{
    (void)pid;
    (void)p;
    return 0;
}

int tree_hides(pid_t pid)
{
    (void)pid;
    return 0;
}

struct stack *stack_open(const struct stack_config *config, const char **why)
{
    (void)config;
    *why = "there is no debugger";
    return NULL;
}

void stack_close(struct stack *s)
{
    FUZZ_CHECK(!s);
}

void interfaces_read(const char *root, struct control_interfaces *out)
{
    (void)root;
    memset(out, 0, sizeof(*out));
}

int interfaces_speed(const char *root, const char *name)
{
    (void)root;
    (void)name;
    return 0;
}

int interfaces_virtual(const char *root, const char *name)
{
    (void)root;
    (void)name;
    return 0;
}

char *interfaces_machine(const char *root)
{
    (void)root;
    return hb_xstrdup("machine");
}

char *interfaces_namespaces(const char *root)
{
    (void)root;
    return hb_xstrdup("namespaces");
}

/* Starts no child; the answer ends when the input says so. */
int query_ask(struct query *q, uv_loop_t *loop, const void *payload, size_t len,
              query_on_answer on_answer, void *arg, struct hb_error *err)
{
    json_t *question = NULL;
    int rc;

    (void)loop;
    if (q->open)
        return hb_error_set(err, HVD_EPROTO, "a query before the last answer");
    rc = query_decode(payload, len, CONTROL_QUERY, &question, err);
    if (rc < 0)
        return rc;
    (void)query_string(question, "what");
    json_decref(question);
    q->on_answer = on_answer;
    q->arg = arg;
    q->open = 1;
    return 0;
}

void query_close(struct query *q)
{
    q->closed = 1;
}

void query_fini(struct query *q)
{
    hb_buf_free(&q->in);
}

static void answer_query(struct query *q)
{
    json_t *answer;

    if (!q->open || q->closed)
        return;
    q->open = 0;
    answer = json_object();
    FUZZ_CHECK(answer && query_encode(&q->in, CONTROL_ANSWER, answer) == 0);
    json_decref(answer);
    q->on_answer(q->arg, &q->in);
    hb_buf_clear(&q->in);
}

int route_serve(struct route *r, int *port, struct hb_error *err)
{
    (void)err;
    r->listening = 1;
    *port = 4711;
    return 0;
}

void route_serve_close(struct route *r)
{
    r->listening = 0;
}

static void check_probe(const struct control_route_probe *m)
{
    FUZZ_CHECK(m->count > 0 && m->count <= CONTROL_TARGETS_MAX);
}

void route_try_start(struct route *r, const struct control_route_probe *m)
{
    (void)r;
    check_probe(m);
}

void route_try_close(struct route *r)
{
    (void)r;
}

void route_measure_start(struct route *r, const struct control_route_probe *m)
{
    (void)r;
    check_probe(m);
}

void route_measure_close(struct route *r)
{
    (void)r;
}

#endif
