/* SPDX-License-Identifier: Apache-2.0 */
/* The batch systems that list hosts in files or plain words; see
 * allocation.h. */
#include "lib/hosts/batch/batch.h"
#include "lib/hosts/hostparse.h"

#include <string.h>

/* Reads the hostfile that the variable names: a line for each slot. */
static int read_hostfile(struct batch *b, const char *variable)
{
    int rc = hostlist_read_file(batch_get(b, variable), &b->out->hosts, b->err);

    for (size_t i = 0; i < b->out->hosts.count; i++)
        if (!b->out->hosts.entries[i].slots)
            b->out->hosts.entries[i].slots = 1;
    return rc < 0 ? hb_error_context(b->err, "%s", variable) : 0;
}

int batch_pbs(struct batch *b)
{
    return read_hostfile(b, "PBS_NODEFILE");
}

/* Adds a host and the number of slots behind it. */
static int parse_pair(struct host_parser *ps)
{
    struct host_spec spec;
    int rc = host_parse_name(ps, "", &spec);

    host_skip_blanks(ps);
    if (rc == 0)
        rc = host_parse_number(ps, "", "slots", HOSTS_SLOTS_MAX, &spec.slots);
    return rc < 0 ? rc : host_add_spec(ps, &spec);
}

int batch_lsf(struct batch *b)
{
    static const char variable[] = "LSB_MCPU_HOSTS";
    const char *text = batch_get(b, variable);
    struct host_parser ps;
    int rc = 0;

    if (!text)
        return read_hostfile(b, "LSB_DJOB_HOSTFILE");
    host_begin(&ps, variable, text, strlen(text), b->err);
    host_skip_blanks(&ps);
    while (rc == 0 && ps.p < ps.end) {
        rc = parse_pair(&ps);
        host_skip_blanks(&ps);
    }
    return host_finish(&ps, rc, &b->out->hosts);
}

/* Parses `host slots queue processors`; the last two say nothing to hvdrun. */
static int parse_sge_line(struct host_parser *ps)
{
    host_skip_blanks(ps);
    return ps->p == ps->end ? 0 : parse_pair(ps);
}

int batch_sge(struct batch *b)
{
    static const char variable[] = "PE_HOSTFILE";
    const char *path = batch_get(b, variable);
    struct hb_buf text = HB_BUF_INIT;
    int rc = host_read_text(path, &text, b->err);

    if (rc == 0)
        rc = host_parse_lines(path, hb_buf_data(&text), hb_buf_len(&text),
                              parse_sge_line, &b->out->hosts, b->err);
    hb_buf_free(&text);
    return rc < 0 ? hb_error_context(b->err, "%s", variable) : 0;
}
