/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's part of --http: loads the plug-in, and answers requests from the
 * job's record.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/linkage.h"
#include "lib/base/sys/trust.h"
#include "lib/job/output/xbuf.h"
#include "lib/job/record/record_data.h"
#include "lib/job/serve/metrics.h"
#include "lib/job/serve/serve_address.h"
#include "lib/job/serve/serve_plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLAIN_TYPE "text/plain; charset=utf-8"

struct job_serve {
    struct job *job;
    struct serve_address address;
    const struct serve_plugin *plugin;
    struct serve *serve;
    char made[SERVE_TOKEN_RANDOM + 1]; /* "": the user has chosen a token */
    void (*on_close)(struct job *job);
};

static const char *token_of(const struct job_serve *js)
{
    return js->made[0] ? js->made : js->job->config->http_token;
}

/* ---- Answers ---- */

/* Makes a nonce for the page's script; "" with no randomness: then the script
 * does not run. */
static void make_nonce(char nonce[SERVE_TOKEN_RANDOM + 1])
{
    if (serve_token_make(nonce, NULL) < 0)
        nonce[0] = '\0';
}

static void answer_page(struct serve_reply *reply, const struct record *view)
{
    char nonce[SERVE_TOKEN_RANDOM + 1];

    make_nonce(nonce);
    reply->type = "text/html; charset=utf-8";
    snprintf(reply->policy, sizeof(reply->policy),
             "default-src 'none'; style-src 'unsafe-inline'; "
             "script-src 'nonce-%s'; connect-src 'self'; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'",
             nonce);
    record_html_live(&reply->body, view, nonce);
}

static void answer_with(struct job *job, enum serve_page page,
                        struct serve_reply *reply)
{
    struct record view;

    if (page != SERVE_HEALTH)
        job_counts_watch(job);
    job_record_view(job, &view);
    switch (page) {
    case SERVE_HEALTH:
        xbuf_puts(&reply->body, "ok\n");
        break;
    case SERVE_LIVE:
        answer_page(reply, &view);
        break;
    case SERVE_EVENTS:
        reply->type = "text/event-stream";
        reply->is_stream = 1;
        break;
    case SERVE_JSON:
        reply->type = "application/json";
        record_json(&reply->body, &view);
        break;
    case SERVE_METRICS:
        reply->type = METRICS_TYPE;
        metrics_text(&reply->body, &view, job_elastic_generation(job));
        break;
    }
}

static void on_request(void *arg, const struct serve_request *q,
                       struct serve_reply *reply)
{
    const struct job_serve *js = arg;
    enum serve_page page;

    reply->type = PLAIN_TYPE;
    snprintf(reply->policy, sizeof(reply->policy),
             "default-src 'none'; frame-ancestors 'none'");
    reply->status = serve_request_check(q, token_of(js), &page);
    if (reply->status == 200)
        answer_with(js->job, page, reply);
    else
        xbuf_puts(&reply->body,
                  reply->status == 401   ? "the token is missing or wrong\n"
                  : reply->status == 405 ? "only GET and HEAD are answered\n"
                                         : "there is no such page\n");
}

static void on_event(void *arg, int is_last, struct hb_buf *out)
{
    const struct job_serve *js = arg;
    struct hb_buf text = HB_BUF_INIT;
    struct record view;

    job_counts_watch(js->job);
    job_record_view(js->job, &view);
    record_html_main(&text, &view);
    serve_event(out, "page", hb_buf_data(&text));
    if (is_last)
        serve_event(out, "end", "");
    hb_buf_free(&text);
}

/* ---- Life ---- */

static int load_plugin(struct job_serve *js, struct hb_error *err)
{
    const char *path = js->job->config->http_plugin;
    char real[PATH_MAX];
    void *object = NULL, *symbol;
    serve_plugin_fn *get;

    if (hb_may_load(err) < 0)
        return err->status;
    if (!path || access(path, R_OK) < 0)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "this hvdrun was built without libmicrohttpd");
    if (hb_check_trust(path, "/proc/self/exe", real, err) < 0)
        return err->status;
    object = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    symbol = object ? dlsym(object, SERVE_PLUGIN_SYMBOL) : NULL;
    if (!symbol)
        return hb_error_set(err, HVD_EUNSUPPORTED, "%s", dlerror());
    memcpy(&get, &symbol, sizeof(get));
    js->plugin = get(SERVE_PLUGIN_ABI);
    if (!js->plugin)
        return hb_error_set(err, HVD_EUNSUPPORTED, "%s is of another version",
                            path);
    return 0;
}

static int choose_token(struct job_serve *js, struct hb_error *err)
{
    const char *chosen = js->job->config->http_token;

    if (!chosen)
        return serve_token_make(js->made, err);
    if (serve_token_check(chosen, err) < 0)
        return hb_error_context(err, "HVD_HTTP_TOKEN");
    return 0;
}

static int open_server(struct job_serve *js, struct hb_error *err)
{
    struct serve_config config = {
        .loop = js->job->config->loop,
        .answer = on_request,
        .event = on_event,
        .arg = js,
    };
    int rc = serve_address_parse(js->job->config->http, &js->address, err);

    if (rc == 0)
        rc = load_plugin(js, err);
    if (rc == 0)
        rc = choose_token(js, err);
    if (rc < 0)
        return rc;
    config.fd = serve_address_listen(&js->address, err);
    if (config.fd < 0)
        return config.fd;
    rc = js->plugin->open(&config, &js->serve, err);
    if (rc < 0)
        close(config.fd);
    return rc;
}

int job_serve_open(struct job *job, struct hb_error *err)
{
    struct job_serve *js;

    if (!job->config->http)
        return 0;
    js = hb_xcalloc(1, sizeof(*js));
    js->job = job;
    if (open_server(js, err) < 0) {
        hb_free(js);
        return hb_error_context(err, "--http %s", job->config->http);
    }
    job->serve = js;
    return 0;
}

void job_serve_tell(struct job *job)
{
    const struct job_serve *js = job->serve;
    struct hb_buf text = HB_BUF_INIT;

    if (!js)
        return;
    xbuf_puts(&text, "hvdrun: status at ");
    serve_address_url(&text, &js->address, js->made[0] ? js->made : NULL);
    xbuf_puts(&text, "\n");
    /* Not job_message: the token does not belong into reports. */
    output_message(job->output, hb_buf_data(&text), hb_buf_len(&text));
    hb_buf_free(&text);
}

static void on_closed(void *arg)
{
    const struct job_serve *js = arg;

    js->on_close(js->job);
}

int job_serve_close(struct job *job, void (*closed)(struct job *job))
{
    struct job_serve *js = job->serve;

    if (!js)
        return 0;
    js->on_close = closed;
    js->plugin->close(js->serve, on_closed, js);
    return 1;
}

static void forget(struct job *job)
{
    explicit_bzero(job->serve->made, sizeof(job->serve->made));
    hb_free(job->serve);
    job->serve = NULL;
}

void job_serve_abandon(struct job *job)
{
    if (!job->serve)
        return;
    job->serve->plugin->close(job->serve->serve, NULL, NULL);
    forget(job);
}

void job_serve_free(struct job *job)
{
    if (job->serve)
        forget(job);
}
