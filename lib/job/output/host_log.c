/* SPDX-License-Identifier: Apache-2.0 */
/* See host_log.h. */
#include "lib/job/output/host_log.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/control/control.h"

#include <string.h>

void host_log_init(struct host_log *h, const struct hb_log *log,
                   const char *name)
{
    *h = (struct host_log){.log = log, .name = name};
}

void host_log_fini(struct host_log *h)
{
    hb_buf_free(&h->part);
    hb_free(h->last_words);
    h->last_words = NULL;
}

static void keep_words(struct host_log *h, const char *line, size_t len)
{
    static const char prefix[] = "hvd-agent: ";
    const size_t skip = sizeof(prefix) - 1;

    if (len <= skip || memcmp(line, prefix, skip) != 0)
        return;
    hb_free(h->last_words);
    h->last_words = hb_xasprintf("%.*s", (int)(len - skip), line + skip);
}

static void take_line(struct host_log *h, const char *line, size_t len)
{
    if (len > HOST_LOG_LINE_MAX)
        len = HOST_LOG_LINE_MAX;
    keep_words(h, line, len);
    if (h->lines >= HOST_LOG_LINES_MAX)
        return;
    if (++h->lines < HOST_LOG_LINES_MAX)
        hb_log(h->log, HB_LOG_WARNING, "host %s: %.*s", h->name, (int)len,
               line);
    else
        hb_log(h->log, HB_LOG_WARNING,
               "host %s: what else it writes to its stderr is not shown",
               h->name);
}

void host_log_stderr(struct host_log *h, const char *bytes, size_t len)
{
    const char *end;

    while ((end = memchr(bytes, '\n', len))) {
        size_t n = (size_t)(end - bytes);

        xbuf_append(&h->part, bytes, n);
        take_line(h, hb_buf_data(&h->part), hb_buf_len(&h->part));
        hb_buf_clear(&h->part);
        bytes += n + 1;
        len -= n + 1;
    }
    xbuf_append(&h->part, bytes, len);
    if (hb_buf_len(&h->part) > HOST_LOG_LINE_MAX)
        host_log_end(h);
}

void host_log_end(struct host_log *h)
{
    if (hb_buf_len(&h->part) > 0)
        take_line(h, hb_buf_data(&h->part), hb_buf_len(&h->part));
    hb_buf_clear(&h->part);
}

int host_log_frame(struct host_log *h, const struct frame *f,
                   struct hb_error *err)
{
    char text[HOST_LOG_LINE_MAX];
    int level;
    int rc =
        control_decode_log(f->payload, f->len, &level, text, sizeof(text), err);

    if (rc < 0)
        return rc;
    if (h->messages >= HOST_LOG_LINES_MAX)
        return hb_error_set(err, HVD_EPROTO, "a flood of log lines");
    h->messages++;
    hb_log(h->log, (enum hb_log_level)level, "host %s: %s", h->name, text);
    return 0;
}
