/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts that differ; see wireup_hosts.h. */
#include "lib/agent/wireup/wireup_hosts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int is_alone(const struct wireup_config *config)
{
    return config->job->host_names.count < 2;
}

static struct rdv_request about(const struct wireup_kind *kind, enum rdv_op op)
{
    struct rdv_request m = {.op = op, .scope = "wireup"};

    snprintf(m.key, sizeof(m.key), "without.%s", kind->name);
    return m;
}

static void on_told(void *arg, const struct rdv_reply *m)
{
    (void)arg;
    (void)m;
}

void wireup_tell_hosts(const struct wireup_config *config,
                       const struct wireup_kind *kind, const char *fmt, ...)
{
    struct rdv_request m = about(kind, RDV_PUT);
    char text[WIREUP_HOSTS_TEXT_BYTES];
    va_list ap;

    if (is_alone(config))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    m.value = text;
    m.len = strlen(text);
    (void)relay_own_request(config->relay, &m, on_told, NULL);
}

uint32_t wireup_watch_hosts(const struct wireup_config *config,
                            const struct wireup_kind *kind, relay_own_cb cb,
                            void *arg)
{
    struct rdv_request m = about(kind, RDV_GET);

    m.wait = 1;
    return is_alone(config) ? 0 : relay_own_request(config->relay, &m, cb, arg);
}
