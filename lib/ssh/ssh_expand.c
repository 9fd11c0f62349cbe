/* SPDX-License-Identifier: Apache-2.0 */
/* See ssh_expand.h. */
#include "lib/ssh/ssh_expand.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"

#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 256 };

static int put_own_name(int whole, struct hb_buf *out)
{
    char name[NAME_BYTES] = "";

    if (gethostname(name, sizeof(name) - 1) == 0 && !whole)
        name[strcspn(name, ".")] = '\0';
    return hb_buf_puts(out, name);
}

/* Appends the value of a token; -HVD_ENOENT if it is not supported. */
static int put_token(const struct ssh_config *c, const struct ssh_user *u,
                     char token, struct hb_buf *out)
{
    switch (token) {
    case '%':
        return hb_buf_putc(out, '%');
    case 'h':
        return hb_buf_puts(out, c->hostname);
    case 'n':
        return hb_buf_puts(out, c->name);
    case 'k':
        return hb_buf_puts(out,
                           c->host_key_alias ? c->host_key_alias : c->name);
    case 'p':
        return hb_buf_printf(out, "%d", c->port);
    case 'r':
        return hb_buf_puts(out, c->user);
    case 'j':
        return hb_buf_puts(out, c->proxy_jump ? c->proxy_jump : "");
    case 'u':
        return hb_buf_puts(out, u->name);
    case 'd':
        return hb_buf_puts(out, u->home);
    case 'i':
        return hb_buf_printf(out, "%u", (unsigned)getuid());
    case 'l':
    case 'L':
        return put_own_name(token == 'l', out);
    }
    return -HVD_ENOENT;
}

static int put_all(const struct ssh_config *c, const struct ssh_user *u,
                   const char *s, struct hb_buf *out)
{
    int rc = 0;

    for (; rc == 0 && *s; s++)
        rc = *s == '%' ? put_token(c, u, *++s, out) : hb_buf_putc(out, *s);
    return rc;
}

int ssh_expand(const struct ssh_config *c, const struct ssh_user *u,
               int is_file, char **value)
{
    struct hb_buf out = HB_BUF_INIT;
    const char *s = *value;
    char *text;
    int rc = 0;

    if (is_file && strstr(s, "${"))
        return -HVD_ENOENT;
    if (is_file && s[0] == '~') {
        if (s[1] && s[1] != '/')
            return -HVD_ENOENT; /* another user's */
        rc = hb_buf_puts(&out, u->home);
        s++;
    }
    if (rc == 0)
        rc = put_all(c, u, s, &out);
    text = rc == 0 ? hb_buf_detach(&out) : NULL;
    hb_buf_free(&out);
    if (!text)
        return rc < 0 ? rc : -HVD_ENOMEM;
    hb_free(*value);
    *value = text;
    return 0;
}
