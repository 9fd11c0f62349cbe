/* SPDX-License-Identifier: Apache-2.0 */
/* See color.h. */
#include "cmd/hvdrun/color.h"

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
