/* SPDX-License-Identifier: Apache-2.0 */
/* What all calls share: options, process set, and the way to the engine; see
 * call.h.  call_arguments.c has what is specific to each kind. */
#include "runtime/core/api/call.h"

#include "lib/base/alloc.h"
#include "runtime/core/set/provider.h"
#include "runtime/plane/site.h"

#include <math.h>
#include <string.h>

/* ---- Options --------------------------------------------------------- */

enum { OPTIONS_BYTES_MAX = 4096, OPTIONS_BYTES_MIN = 3 * 8 };

static const struct hvd_options defaults = HVD_OPTIONS_INIT;

/* Copies the options, checked, to *out.  A caller built with a newer hvd.h may
 * pass more fields, which must hold their default, 0; one built with an older
 * hvd.h passes fewer. */
static int read_options(const struct hvd_options *opts, struct hvd_options *out,
                        struct hb_error *err)
{
    const unsigned char *bytes = (const unsigned char *)opts;

    *out = defaults;
    if (!opts)
        return 0;
    if (opts->size < OPTIONS_BYTES_MIN || opts->size > OPTIONS_BYTES_MAX)
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: size is %zu; begin with "
                            "HVD_OPTIONS_INIT",
                            opts->size);
    for (size_t i = sizeof(*opts); i < opts->size; i++)
        if (bytes[i])
            return hb_error_set(err, HVD_EUNSUPPORTED,
                                "hvd_options: a field this libhvd (%s) "
                                "does not know is set",
                                HVD_VERSION);
    memcpy(out, opts, opts->size < sizeof(*out) ? opts->size : sizeof(*out));
    if (!isfinite(out->prescale) || !isfinite(out->postscale))
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: a scale is not finite");
    if (out->wire < HVD_WIRE_FULL || out->wire > HVD_WIRE_BFLOAT16)
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: wire %d is not an enum hvd_wire",
                            out->wire);
    return 0;
}

/* Refuses options.done in a blocking call, whose caller needs no notice. */
static int no_callback(const struct hvd_options *o, struct hb_error *err)
{
    if (!o->done)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "hvd_options: done is for _async forms");
}

int hvd__call_no_scales(const struct hvd_options *o, struct hb_error *err)
{
    if (o->prescale == 1.0 && o->postscale == 1.0)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "hvd_options: only reductions can be scaled");
}

/* Refuses options that operations of that kind do not have. */
static int check_kind(enum hvd__kind kind, const struct hvd_options *o,
                      struct hb_error *err)
{
    if (o->alloc && kind != HVD__ALLGATHER && kind != HVD__ALLTOALL)
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: only allgather and alltoall ask "
                            "alloc for memory");
    return collective_reduces(kind) ? 0 : hvd__call_no_scales(o, err);
}

/* ---- A call ----------------------------------------------------------- */

static int find_set(struct hvd__call *c, struct hb_error *err)
{
    c->set = hvd__set_find(c->o.process_set);
    if (!c->set && !hvd__alive()) /* not any more */
        return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
    if (!c->set)
        return hb_error_set(err, HVD_ENOSET, "there is no process set %d",
                            c->o.process_set);
    if (c->set->me >= 0)
        return 0;
    return hb_error_set(err, HVD_ENOTMEMBER,
                        "rank %d is not a member of process set %d%s",
                        hvd__context.topology.rank, c->o.process_set,
                        c->set->n ? "" : ", all members of which are gone");
}

static int check_name(const char **name, struct hb_error *err)
{
    if (!*name)
        *name = "";
    if (strlen(*name) < HVD__NAME_BYTES)
        return 0;
    return hb_error_set(err, HVD_EINVAL, "name: longer than %d bytes: %.32s...",
                        HVD__NAME_BYTES - 1, *name);
}

/* Sets all that end() frees before the first check, so that a call can be ended
 * after any failure. */
int hvd__call_begin_at(struct hvd__call *c, enum hvd__kind kind,
                       const char *name, const struct hvd_options *opts,
                       const void *caller)
{
    struct hvd__op *op = &c->req.op;
    struct hb_error *err = &c->req.err;
    int rc;

    c->more = NULL;
    c->parts = NULL;
    c->members = NULL;
    c->needs_device = 0;
    hvd__op_init(op);
    hvd__request_init(&c->req);
    op->kind = kind;
    if (!hvd__alive())
        return hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
    rc = check_name(&name, err);
    if (rc == 0)
        rc = read_options(opts, &c->o, err);
    if (rc == 0)
        rc = find_set(c, err);
    if (rc == 0)
        rc = check_kind(kind, &c->o, err);
    op->name = name;
    op->hashes.name = name[0] ? hvd__name_hash(name) : 0;
    if (hvd__context.knobs.compares_sites && !name[0] && kind != HVD__JOIN) {
        op->hashes.site = hvd__site_hash(caller);
        c->req.caller = caller;
    }
    op->prescale = c->o.prescale;
    op->postscale = c->o.postscale;
    op->elem_bytes = 1;
    c->req.priority = c->o.priority;
    return rc;
}

/* Asks the provider of device memory about the buffers of c.  Stays out of
 * line: inlined, `where` would cost every call a stack protector. */
static __attribute__((noinline)) int issue(struct hvd__call *c)
{
    const struct hvd__issue where = {
        .req = &c->req,
        .parts = c->req.op.parts == &c->part ? &c->part : c->parts,
        .me = c->set->me,
        .stream = c->o.stream,
    };

    return hvd__providers_issue(&where);
}

/* Looks for device memory if the buffers of c may, or must, be in it. */
static int look_for_device(struct hvd__call *c, int rc)
{
    if (rc < 0 ||
        (!hvd__context.looks_at_buffers && !c->o.stream && !c->needs_device))
        return rc;
    return issue(c);
}

static int add_shapes(struct hvd__call *c, int rc)
{
    return rc == 0 && c->o.shapes ? hvd__call_shapes(c) : rc;
}

static void end(struct hvd__call *c)
{
    hvd__op_release(&c->req.op);
    hb_free(c->more);
    hb_free(c->parts);
    hb_free(c->members);
}

static int report_error(struct hvd__call *c)
{
    hb_error_context(&c->req.err, "%s", collective_name(c->req.op.kind));
    return hvd__tell(&c->req.err);
}

int hvd__call_is_plain(const struct hvd_options *o)
{
    return o->size == sizeof(*o) && o->prescale == 1.0 && o->postscale == 1.0 &&
           !o->process_set && !o->wire && !o->live_average && !o->priority &&
           !o->stream && !o->alloc && !o->done && !o->shapes;
}

/* Carries out the call; rc is the status of making it. */
int hvd__call_run(struct hvd__call *c, int rc)
{
    struct hvd_request *req = &c->req;

    if (rc == 0)
        rc = no_callback(&c->o, &req->err);
    rc = look_for_device(c, add_shapes(c, rc));
    if (rc < 0) {
        rc = report_error(c);
    } else {
        /* The cache does not know options and call sites: a later call that
         * differs in these would be taken for this one. */
        if (!hvd__call_is_plain(&c->o) || req->op.hashes.site)
            req->given = NULL;
        req->signature = hvd__op_signature(&req->op);
        rc = hvd__engine_run(&c->set->engine, req);
        if (rc == 0 && req->op.device.launch)
            hvd__engine_wait_on_stream(&c->set->engine, req, c->o.stream);
        rc = hvd__tell(&req->err);
    }
    end(c);
    return rc < 0 ? rc : 0;
}

static int queue(struct hvd__call *c, hvd_request **out)
{
    struct hb_error *err = &c->req.err;
    struct hvd_request *req;
    int rc;

    c->req.signature = hvd__op_signature(&c->req.op);
    c->req.on_done = c->o.done;
    c->req.done_arg = c->o.done_arg;
    req = hvd__request_copy(&c->req, c->set->n);
    if (!req)
        return hvd__fail(HVD_ENOMEM, "no memory for a request");
    rc = hvd__engine_submit(&c->set->engine, req, err);
    if (rc < 0) {
        req->op.device.ready = NULL; /* the call still owns it */
        hvd__request_free(req);
        return hvd__tell(err);
    }
    c->req.op.device.ready = NULL; /* the request owns it now */
    *out = req;
    return 0;
}

int hvd__call_submit(struct hvd__call *c, int rc, hvd_request **out)
{
    if (rc == 0 && !out)
        rc = hb_error_set(&c->req.err, HVD_EINVAL, "req is NULL");
    rc = look_for_device(c, add_shapes(c, rc));
    rc = rc < 0 ? report_error(c) : queue(c, out);
    end(c);
    return rc;
}

/* Blocks, but takes the way through the queue. */
int hvd__call_submit_and_wait(struct hvd__call *c, int rc)
{
    hvd_request *req = NULL;

    if (rc == 0)
        rc = no_callback(&c->o, &c->req.err);
    rc = hvd__call_submit(c, rc, &req);
    if (rc < 0)
        return rc;
    return c->o.stream ? hvd_wait_on_stream(req, c->o.stream) : hvd_wait(req);
}
