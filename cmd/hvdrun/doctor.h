/* SPDX-License-Identifier: Apache-2.0 */
/* `hvdrun doctor`: are these hosts fit to run a job together?  And what to
 * do where they are not; hvdrun-doctor(1). */
#ifndef HVDRUN_DOCTOR_H
#define HVDRUN_DOCTOR_H

#include "cmd/hvdrun/findings.h"
#include "cmd/hvdrun/options.h"
#include "lib/job/routes.h"

#include <jansson.h>

enum {
    DOCTOR_EXIT_FINDINGS = 1,
    DOCTOR_MATRIX_MAX = 16, /* hosts of which all pairs are shown */
};

/* Prints, and returns hvdrun's exit code. */
int doctor_run(const struct options *o, const struct hb_log *log);

/* ---- Pure parts, for tests ---- */

struct doctor_host {
    const char *name;
    int is_local;
    int reached;       /* its agent answered */
    int status;        /* of the error; 0: none */
    const char *error; /* "": none */
    int dns_failed;    /* this machine does not know the name ... */
    char *dns_error;   /* ... why */
    struct hb_strv addresses;
    double connect_ms;
    json_t *report; /* the answer to "doctor" (query_doctor.c); or NULL */
    int has_clock;
    double offset_ms, offset_error_ms; /* its clock ahead of ours */
};

/* What hosts are, in themselves and compared with each other. */
void doctor_check_hosts(const struct doctor_host *hosts, size_t count,
                        struct findings *f);

/* A direction of a pair of reached hosts. */
struct doctor_net {
    const char *const *names;
    size_t count;
    const struct routes_pair *pairs; /* [from * count + to] */
};

void doctor_check_net(const struct doctor_net *net, struct findings *f);
/* All pairs; for more hosts than DOCTOR_MATRIX_MAX the worst. */
void doctor_matrix(const struct doctor_net *net, struct hb_buf *out);
json_t *doctor_matrix_json(const struct doctor_net *net);

/* The sections, in the order in which they are told. */
extern const char *const doctor_sections[];

#endif
