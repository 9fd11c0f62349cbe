/* SPDX-License-Identifier: Apache-2.0 */
/* See terminal.h. */
#include "cmd/hvdrun/terminal.h"

#include <string.h>
#include <unistd.h>

unsigned color_wanted(const struct options *o)
{
    const char *term = NULL;
    struct hb_strv env = {environ, 0, 0};
    const char *no_color;
    unsigned color;

    while (environ[env.count])
        env.count++;
    no_color = hb_env_get(&env, "NO_COLOR");
    term = hb_env_get(&env, "TERM");
    if (!o->tag || (no_color && *no_color) || !term ||
        strcmp(term, "dumb") == 0)
        return 0;
    color = isatty(1) ? 1u : 0u;
    return color | (isatty(2) ? 2u : 0u);
}

int status_is_shown(const struct options *o)
{
    return o->status && isatty(2);
}
