/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the completions for shells from the table of options.
 *
 * Each script knows which options take values, so that it finds where the
 * command begins: from there on, words are completed as those of that command.
 * If the first word is a tool (TOOLS), only options for these are offered.
 */
#include "cmd/hvdrun/options/options_table.h"
#include "lib/base/alloc.h"
#include "lib/base/buf.h"

#include <string.h>

/* The tools (options.c), with something between them. */
#define TOOLS_BY(between) \
    "ps" between "kill" between "drain" between "clean" between "doctor"
#define TOOLS TOOLS_BY(" ")

enum value {
    VALUE_NONE,
    VALUE_CHOICE,
    VALUE_FILE,
    VALUE_FOLDER,
    VALUE_OTHER, /* nothing to offer */
};

static enum value value_of(const struct option *o)
{
    if (o->arg == ARG_NONE || o->arg == ARG_OPTIONAL)
        return VALUE_NONE;
    if (o->arg == ARG_CHOICE)
        return VALUE_CHOICE;
    if (!strcmp(o->metavar, "FILE") || !strcmp(o->metavar, "PATH"))
        return VALUE_FILE;
    return strcmp(o->metavar, "DIR") ? VALUE_OTHER : VALUE_FOLDER;
}

/* Returns the number of words that are the option's value. */
static int words_of(const struct option *o)
{
    return value_of(o) == VALUE_NONE ? 0 : o->flags & OPTION_PAIR ? 2 : 1;
}

static int is_offered(const struct option *o, int to_tools)
{
    if (o->group == GROUP_COMPAT)
        return 0;
    return to_tools ? (o->flags & OPTION_TOOL) != 0
                    : !(o->flags & OPTION_TOOL_ONLY);
}

static void put(struct hb_buf *out, const char *text)
{
    hb_must(hb_buf_puts(out, text));
}

/* Puts a text for a place between single quotes, with a backslash before each
 * of `special`. */
static void put_escaped(struct hb_buf *out, const char *text,
                        const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            put(out, "'\\'");
        else if (strchr(special, *text))
            put(out, "\\");
        hb_must(hb_buf_putc(out, *text));
    }
}

/* Puts the names of the option with `between` between them. */
static void put_names(struct hb_buf *out, const struct option *o,
                      const char *between)
{
    for (int n = 0; n < OPTION_NAMES_MAX && o->names[n]; n++) {
        put(out, n ? between : "");
        put(out, o->names[n]);
    }
}

/* Puts the names of all options whose value is that many words. */
static void put_all(struct hb_buf *out, int words, const char *between)
{
    int count = 0;

    for (size_t i = 0; i < options_table_count; i++) {
        if (words_of(&options_table[i]) != words)
            continue;
        put(out, count++ ? between : "");
        put_names(out, &options_table[i], between);
    }
}

static void put_offered(struct hb_buf *out, int to_tools)
{
    int count = 0;

    for (size_t i = 0; i < options_table_count; i++) {
        if (!is_offered(&options_table[i], to_tools))
            continue;
        put(out, count++ ? " " : "");
        put_names(out, &options_table[i], " ");
    }
}

/* ---- bash ---- */

static const char bash_start[] =
    "# Completion of hvdrun for bash, made by: hvdrun --completion bash\n"
    "_hvdrun() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} want='' left=0 tool='' i word\n"
    "    COMPREPLY=()\n"
    "    [[ $cur != = ]] || cur=''\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((left)); then\n"
    "            [[ $word == = ]] || left=$((left - 1))\n"
    "            continue\n"
    "        fi\n"
    "        case $word in\n"
    "        " TOOLS_BY(" | ") ")\n"
                               "            ((i == 1)) || break\n"
                               "            tool=1\n"
                               "            ;;\n"
                               "        =)\n"
                               "            want=''\n"
                               "            left=1\n"
                               "            ;;\n"
                               "        --)\n"
                               "            i=$((i + 1))\n"
                               "            break\n"
                               "            ;;\n";

static const char bash_command[] =
    "        -*) ;;\n"
    "        *)\n"
    "            [[ $tool ]] || break\n"
    "            ;;\n"
    "        esac\n"
    "    done\n"
    "    if ((i < COMP_CWORD)) || [[ ${COMP_WORDS[i - 1]} == -- && i -gt 1 && "
    "$left -eq 0 ]]; then\n"
    "        if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null; "
    "then\n"
    "            _command_offset $i\n"
    "        elif ((i < COMP_CWORD)); then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "        else\n"
    "            mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n"
    "        fi\n"
    "        return\n"
    "    fi\n"
    "    if ((left)); then\n"
    "        case $want in\n";

static const char bash_end[] =
    "    if [[ $cur == -* ]]; then\n"
    "        [[ ! $tool ]] || words=$tools\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "    elif [[ ! $tool ]]; then\n"
    "        mapfile -t COMPREPLY < <(\n"
    "            ((COMP_CWORD > 1)) || compgen -W '" TOOLS "' -- \"$cur\"\n"
    "            compgen -c -- \"$cur\"\n"
    "        )\n"
    "    fi\n"
    "}\n"
    "complete -F _hvdrun hvdrun horovodrun\n";

static void put_bash_value(struct hb_buf *out, const struct option *o)
{
    enum value value = value_of(o);

    if (value == VALUE_NONE || value == VALUE_OTHER)
        return;
    put(out, "        ");
    put_names(out, o, " | ");
    put(out, ")\n            ");
    if (value == VALUE_CHOICE)
        hb_must(hb_buf_printf(out,
                              "mapfile -t COMPREPLY < <(compgen -W '%s' "
                              "-- \"$cur\")\n",
                              o->choices));
    else
        hb_must(hb_buf_printf(
            out,
            "compopt -o filenames 2>/dev/null\n"
            "            mapfile -t COMPREPLY < <(compgen -%s -- \"$cur\")\n",
            value == VALUE_FOLDER ? "d" : "f"));
    put(out, "            ;;\n");
}

static void put_bash(struct hb_buf *out)
{
    put(out, bash_start);
    for (int words = 1; words <= 2; words++) {
        put(out, "        ");
        put_all(out, words, " | ");
        hb_must(hb_buf_printf(out,
                              ")\n            want=$word\n"
                              "            left=%d\n            ;;\n",
                              words));
    }
    put(out, bash_command);
    for (size_t i = 0; i < options_table_count; i++)
        put_bash_value(out, &options_table[i]);
    put(out, "        esac\n        return\n    fi\n    local words='");
    put_offered(out, 0);
    put(out, "'\n    local tools='");
    put_offered(out, 1);
    put(out, "'\n");
    put(out, bash_end);
}

/* ---- zsh ---- */

static const char zsh_start[] =
    "#compdef hvdrun horovodrun\n"
    "# Completion of hvdrun for zsh, made by: hvdrun --completion zsh\n"
    "_hvdrun_command() {\n"
    "    if ((CURRENT == 2)); then\n"
    "        _alternative 'tools:tool:(" TOOLS ")' \\\n"
    "            'commands:command: _command_names -e'\n"
    "    else\n"
    "        _command_names -e\n"
    "    fi\n"
    "}\n"
    "_hvdrun() {\n"
    "    if ((CURRENT > 2)) && [[ $words[2] == (" TOOLS_BY(
        "|") ") ]]; "
             "then\n"
             "        shift words\n"
             "        ((CURRENT--))\n"
             "        _arguments \\\n";

static const char zsh_end[] = "}\n"
                              "if [[ $funcstack[1] == _hvdrun ]]; then\n"
                              "    _hvdrun \"$@\"\n"
                              "else\n"
                              "    compdef _hvdrun hvdrun horovodrun\n"
                              "fi\n";

static void put_zsh_value(struct hb_buf *out, const struct option *o)
{
    static const char *const actions[] = {
        [VALUE_FILE] = "_files",
        [VALUE_FOLDER] = "_files -/",
        [VALUE_OTHER] = " ",
    };
    enum value value = value_of(o);

    for (int i = 0; i < words_of(o); i++) {
        put(out, ":");
        put_escaped(out, o->metavar, ":[]\\");
        if (value == VALUE_CHOICE)
            hb_must(hb_buf_printf(out, ":(%s)", o->choices));
        else
            hb_must(hb_buf_printf(out, ":%s", actions[value]));
    }
}

/* Puts a specification of _arguments for each name of the option. */
static void put_zsh_option(struct hb_buf *out, const struct option *o)
{
    for (int n = 0; n < OPTION_NAMES_MAX && o->names[n]; n++) {
        int is_long = o->names[n][1] == '-';

        put(out, "            '*");
        put(out, o->names[n]);
        if (o->arg == ARG_OPTIONAL)
            put(out, "=-");
        else if (is_long && words_of(o) == 1)
            put(out, "=");
        put(out, "[");
        put_escaped(out, o->help, ":[]\\");
        put(out, "]");
        if (o->arg == ARG_OPTIONAL)
            hb_must(hb_buf_printf(out, "::%s:(%s)", o->metavar, o->choices));
        else
            put_zsh_value(out, o);
        put(out, "' \\\n");
    }
}

static void put_zsh_options(struct hb_buf *out, int to_tools)
{
    for (size_t i = 0; i < options_table_count; i++)
        if (is_offered(&options_table[i], to_tools))
            put_zsh_option(out, &options_table[i]);
}

static void put_zsh(struct hb_buf *out)
{
    put(out, zsh_start);
    put_zsh_options(out, 1);
    put(out, "            '*:argument: '\n"
             "    else\n"
             "        _arguments \\\n");
    put_zsh_options(out, 0);
    put(out, "            '(-):command:_hvdrun_command' \\\n"
             "            '*::arguments:_normal'\n"
             "    fi\n");
    put(out, zsh_end);
}

/* ---- fish ---- */

static const char fish_start[] =
    "# Completion of hvdrun for fish, made by: hvdrun --completion fish\n"
    "# Prints options, tool, or the words of the command.\n"
    "function __hvdrun_state\n"
    "    set -l words (commandline -opc)\n"
    "    set -e words[1]\n"
    "    set -l state options\n"
    "    set -l left 0\n"
    "    for i in (seq (count $words))\n"
    "        if test $left -gt 0\n"
    "            set left (math $left - 1)\n"
    "            continue\n"
    "        end\n"
    "        switch $words[$i]\n"
    "            case --\n"
    "                set state command $words[$i..-1]\n"
    "                set -e state[2]\n"
    "                break\n";

static const char fish_end[] =
    "            case '-*'\n"
    "            case " TOOLS "\n"
    "                if test $i -eq 1\n"
    "                    set state tool\n"
    "                else\n"
    "                    set state command $words[$i..-1]\n"
    "                    break\n"
    "                end\n"
    "            case '*'\n"
    "                if test $state[1] = options\n"
    "                    set state command $words[$i..-1]\n"
    "                    break\n"
    "                end\n"
    "        end\n"
    "    end\n"
    "    printf '%s\\n' $state\n"
    "end\n"
    "function __hvdrun_is\n"
    "    contains -- (__hvdrun_state)[1] $argv\n"
    "end\n"
    "function __hvdrun_command\n"
    "    set -l words (__hvdrun_state)\n"
    "    set -e words[1]\n"
    "    complete -C (string join ' ' -- (string escape -- $words) "
    "(commandline -ct))\n"
    "end\n"
    "for name in hvdrun horovodrun\n"
    "    complete -c $name -f\n"
    "    complete -c $name -n '__hvdrun_is options command' -xa "
    "'(__hvdrun_command)'\n"
    "    complete -c $name -n 'test (count (commandline -opc)) -eq 1' "
    "-xa '" TOOLS "'\n";

static void put_fish_option(struct hb_buf *out, const struct option *o)
{
    const char *where = !(o->flags & OPTION_TOOL)     ? "options"
                        : o->flags & OPTION_TOOL_ONLY ? "tool"
                                                      : "options tool";
    enum value value = value_of(o);

    hb_must(
        hb_buf_printf(out, "    complete -c $name -n '__hvdrun_is %s'", where));
    for (int n = 0; n < OPTION_NAMES_MAX && o->names[n]; n++) {
        const char *name = o->names[n];

        if (name[1] == '-')
            hb_must(hb_buf_printf(out, " -l %s", name + 2));
        else
            hb_must(
                hb_buf_printf(out, " -%c %s", name[2] ? 'o' : 's', name + 1));
    }
    if (value == VALUE_CHOICE)
        hb_must(hb_buf_printf(out, " -xa '%s'", o->choices));
    else if (value == VALUE_FILE)
        put(out, " -rF");
    else if (value == VALUE_FOLDER)
        put(out, " -xa '(__fish_complete_directories (commandline -ct))'");
    else if (value == VALUE_OTHER)
        put(out, " -x");
    put(out, " -d '");
    put_escaped(out, o->help, "\\");
    put(out, "'\n");
}

static void put_fish(struct hb_buf *out)
{
    put(out, fish_start);
    for (int words = 1; words <= 2; words++) {
        put(out, "            case ");
        put_all(out, words, " ");
        hb_must(hb_buf_printf(out, "\n                set left %d\n", words));
    }
    put(out, fish_end);
    for (size_t i = 0; i < options_table_count; i++)
        if (options_table[i].group != GROUP_COMPAT)
            put_fish_option(out, &options_table[i]);
    put(out, "end\n");
}

char *options_completion(enum options_shell shell)
{
    static void (*const makers[])(struct hb_buf *
                                  out) = {[SHELL_BASH] = put_bash,
                                          [SHELL_ZSH] = put_zsh,
                                          [SHELL_FISH] = put_fish};
    struct hb_buf out = HB_BUF_INIT;
    char *text;

    makers[shell](&out);
    text = hb_xstrdup(hb_buf_data(&out));
    hb_buf_free(&out);
    return text;
}
