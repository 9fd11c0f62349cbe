/* SPDX-License-Identifier: Apache-2.0 */
/* `hvdrun doctor`: checks whether hosts are fit to run a job together, and
 * says what to do where they are not; hvdrun-doctor(1). */
#ifndef HVDRUN_DOCTOR_H
#define HVDRUN_DOCTOR_H

#include "cmd/hvdrun/options/options.h"
#include "cmd/hvdrun/tools/findings.h"
#include "lib/job/route/routes.h"

#include <jansson.h>

enum {
    DOCTOR_EXIT_FINDINGS = 1,
    DOCTOR_MATRIX_MAX = 16, /* up to so many hosts, all pairs are shown */
};

/* Runs the checks and prints the report; returns hvdrun's exit code. */
int doctor_run(const struct options *o, const struct hb_log *log);

/* ---- Pure parts, for tests ---- */

struct doctor_host {
    const char *name;
    int is_local;
    int reached; /* the host's agent answered */
    int status;  /* status of `error`; 0: none */
    enum hb_stage stage;
    const char *error; /* "": none */
    int dns_failed;    /* this machine cannot resolve the name ... */
    char *dns_error;   /* ... why */
    struct hb_strv addresses;
    double connect_ms;
    json_t *report; /* the answer to "doctor" (query_doctor.c); or NULL */
    int has_clock;
    double offset_ms, offset_error_ms; /* how far its clock is ahead of ours */
};

/* Checks each host by itself, and compares the hosts with each other. */
void doctor_check_hosts(const struct doctor_host *hosts, size_t count,
                        struct findings *f);

/* The connections between reached hosts, one entry per ordered pair. */
struct doctor_net {
    const char *const *names;
    size_t count;
    const struct routes_pair *pairs; /* [from * count + to] */
};

void doctor_check_net(const struct doctor_net *net, struct findings *f);
/* Appends the matrix of all pairs; beyond DOCTOR_MATRIX_MAX hosts only the
 * worst pairs. */
void doctor_matrix(const struct doctor_net *net, struct hb_buf *out);
json_t *doctor_matrix_json(const struct doctor_net *net);

/* The report's sections, in order. */
extern const char *const doctor_sections[];

#endif
