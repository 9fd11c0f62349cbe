# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun --completion, in the shells themselves.

# Prints what bash offers for the words; the last one is being typed.
bash_offers() { # WORD...
    bash --norc --noprofile -c '
        . ./hvdrun.bash
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _hvdrun
        printf "%s\n" "${COMPREPLY[@]}"' bash "$@" | sort -u
}

fish_offers() { # WORD...
    HOME=$PWD XDG_CONFIG_HOME=$PWD fish --no-config -c '
        source hvdrun.fish
        complete -C "$argv"' -- "$*" | cut -f 1 | sort -u
}

# zsh completes only at a prompt, so it gets one on a terminal of its own, and is
# asked for the list.
zsh_offers() { # WORD...
    cat >.zshrc <<'END'
PS1=
autoload -U compinit
compinit -u -D
unsetopt beep
zstyle ':completion:*' verbose no
LISTMAX=10000 COLUMNS=200 LINES=900
bindkey '^I' list-choices
. ./hvdrun.zsh
zle-line-init() { print -n ready; }
zle -N zle-line-init
path=(folder) # a list of all commands would be long
END
    cat >ask.zsh <<'END'
zmodload zsh/zpty
zpty z 'zsh -d -i'
zpty -r z text '*ready*'
zpty -n -w z "$*"$'\t'
zpty -n -w z $'\C-u''print "do"ne'$'\n'
zpty -r z text '*done*'
zpty -d z
print -r -- $text
END
    ZDOTDIR=$PWD zsh -f ask.zsh "$@" |
        sed 's/\x1b\[[0-9;?]*[A-Za-z]/ /g' | tr -s ' \r' '\n' | sort -u
}

# Fails unless the shell offers all of GOOD, and none of BAD.
offers() { # GOOD BAD WORD...
    local good=$1 bad=$2 word
    shift 2
    "$shell"_offers "$@" >offered 2>offer.err
    for word in $good; do
        grep -qxF -e "$word" offered ||
            fail "$shell: '$*': $word is not offered: $(head -c 2000 offered offer.err)"
    done
    for word in $bad; do
        ! grep -qxF -e "$word" offered || fail "$shell: '$*': offers $word"
    done
}

completes() { # SHELL
    shell=$1
    command -v "$shell" >/dev/null || skip "there is no $shell here"
    expect_exit 0 "$HVDRUN" --completion "$shell"
    mv out "hvdrun.$shell"
    touch train.one
    mkdir folder
    offers '--map-by --hostfile -np --bind-to' '--gloo --all' hvdrun -
    offers 'slot node' '--bind-to train.one' hvdrun --map-by ''
    offers 'none core numa' '' hvdrun -np 4 --bind-to ''
    offers 'train.one' '' hvdrun --hostfile train
    offers 'ps kill drain clean doctor' '' hvdrun ''
    # behind the command, its words
    offers 'train.one' '--map-by' hvdrun -np 4 cat train
    # tools have options of their own
    offers '--hosts --json' '--map-by --num-proc' hvdrun ps --
    offers '--all' '' hvdrun kill --a
    offers '--within' '--map-by' hvdrun drain --
}

test_completion_bash() {
    completes bash
    offers 'slot node' '' hvdrun --map-by =
    offers 'node' 'slot' hvdrun --map-by = n
    offers '--verbose' '' hvdrun --horovod = force --verb
    offers '--verbose' '' hvdrun --blacklist-cooldown-range 1 2 --verb
}

test_completion_fish() {
    completes fish
    offers '--map-by=slot --map-by=node' '' hvdrun --map-by=
}

test_completion_zsh() {
    completes zsh
}

test_completion_refuses() {
    expect_exit 2 "$HVDRUN" --completion ksh
    check_refusal "^hvdrun: error: --completion 'ksh': must be one of bash zsh fish$"
}
