# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154 # m n h a p and cpu() are put in front
# shellcheck disable=SC2012,SC2069 # ls: our own names; only stderr is wanted
#
# What a host's shell runs to become the agent; see bootstrap.h.  This is
# the inside of one compound command: a shell has read it to its end before
# it runs any of it, and the agent follows on the same stdin.  Comments that
# fill a line are not sent.
#
# m marker, n size, h hash, a name of the agent's file; p path of an agent
# that is installed; cpu MACHINE: does it run here?
#
# The agent is kept in the first of $XDG_CACHE_HOME/hvd, ~/.cache/hvd and
# /tmp/hvd-UID that is a directory of this user with mode 0700, no symbolic
# link, and that programs can be run from; else in a new one that the agent
# removes when it starts.  Work is done from inside a directory, so that what
# was checked cannot be exchanged.  It is written under another name, checks
# itself, and is linked to its own.  Of the builds that were used in the last 30
# days the newest 16 are kept, as other hosts may use them from the same home
# directory; a running agent does not need its file (lib/agent/detach.h).
#
# One that is kept checks itself before it is used: a power cut or a copy may
# have left other bytes in it, with which it would fail at every start.

say() { printf '\nhvd:%s %s\n' "$m" "$*"; }
fail() {
    say fail "$@"
    exit 1
}
[ ! -t 0 ] || fail tty .

if [ -n "$p" ]; then
    case $p in
    [~]/*) p=$HOME/${p#??} ;;
    */*) ;;
    *)
        q=$(command -v "$p") || fail noagent "$p"
        p=$q
        ;;
    esac
    [ -f "$p" ] || fail noagent "$p"
    [ -x "$p" ] || fail noexec "$p"
    say run
    exec "$p"
fi

k=$(uname -sm)
case $k in
Linux\ *) cpu "${k#* }" || fail cpu "${k#* }" ;;
*) fail os "$k" ;;
esac
w=$PWD u=$(umask) why=
umask 077

run() {
    umask "$u"
    say run
    exec "./$a" "$@" "$w"
}

# Where is this process?  A new shell without PWD asks the system; this one
# might follow the name that it remembers.
here() { PWD='' sh -c 'pwd -P'; }

# Was $1 entered without following a link?  In a directory of somebody else, or
# one like /tmp, others may exchange names.
straight() {
    q=${1%/*}
    { [ -O "$q" ] && [ ! -k "$q" ]; } ||
        [ "$(here)" = "$(cd "$q" && here)/${1##*/}" ]
}

# Is the agent in the current directory, whole, and nobody else's?  A shell
# would run what is no program as a script of its own: whatever bytes these are.
good() {
    [ -f "$a" ] && [ ! -L "$a" ] && [ -O "$a" ] && [ -x "$a" ] &&
        { IFS= read -r q <"$a" || :; } 2>/dev/null && case $q in
        ?ELF*) "./$a" --check "$h" >/dev/null 2>&1 </dev/null ;;
        *) false ;;
        esac
}

# Is the current directory, entered as $1, only ours?
private() {
    [ ! -L "$1" ] && [ -O . ] && straight "$1" && case $(LC_ALL=C ls -ldn .) in
    drwx--[-S]---*) ;;
    *) false ;;
    esac
}

# One ls for the directory's mode and the file's size: this is what every
# start waits for.
have() {
    cd "$1" 2>/dev/null && [ ! -L "$1" ] && [ -O . ] && straight "$1" &&
        [ -f "$a" ] &&
        case $(LC_ALL=C ls -ldn . "$a" | {
            read -r q x && read -r x x x x s x && echo "$q $s"
        }) in
        drwx--[-S]---*" $n") good ;;
        *) false ;;
        esac
}

# $d cannot be used, because of $1, of which the words after the last colon
# are told.
miss() {
    why="$why$d: ${1##*: }; "
    rm -f "$t"
    cd /
    [ ! -O "$d" ] || rmdir "$d" 2>/dev/null
}

# cat may end early where the disk is full: the rest must still be read, or
# it would be taken for the next answer.
receive() {
    head -c "$n" | {
        LC_ALL=C cat 2>&1 >"$t" || {
            cat >/dev/null
            false
        }
    }
}

# The agent itself stays: where the file of another start was found, it may be
# old.
prune() {
    find . -name 'hvd-agent-*' ! -name "$a" -mtime +30 -exec rm -f {} \; 2>/dev/null
    LC_ALL=C ls -t hvd-agent-* | tail -n +17 | while read -r q; do
        [ "$q" = "$a" ] || rm -f "$q"
    done
    find . -name '.push-*' -mtime +0 -exec rm -f {} \; 2>/dev/null
}

# Is there a place for it in $d?  Enters it; else e says why not.
enter() {
    e=$(LC_ALL=C mkdir -p "$d" 2>&1) || return
    e='cannot be entered'
    cd "$d" 2>/dev/null || return
    [ "$d" = "$z" ] || [ -L "$d" ] || [ ! -O . ] || chmod 700 .
    e='is not a private directory of this user'
    private "$d" || return
    e=$({ echo '#!/bin/sh' | LC_ALL=C cat >"$t" && chmod 700 "$t"; } 2>&1) ||
        return
    e='no program can be run there (noexec)'
    "./$t" 2>/dev/null
}

# Takes the agent from stdin into the current directory; e as above.  Where
# another start has been faster, with the same home directory perhaps on another
# host, its file stays: it runs already.
take() {
    e=$(receive) || return
    e='it did not arrive whole'
    [ "$(wc -c <"$t")" -eq "$n" ] || return
    e=$("./$t" --check "$h" sync 2>&1 </dev/null) || return
    if ln "$t" "$a" 2>/dev/null || good; then
        rm -f "$t"
    else
        e=$(LC_ALL=C mv -f "$t" "$a" 2>&1)
    fi
}

# Keeps the agent in $1 and becomes it, with $2; returns where that cannot
# be.
attempt() {
    d=$1
    if enter; then
        say want
        if take; then
            prune
            run "$2"
        fi
    fi
    miss "${e:-it does not run}"
}

# hvdrun is gone: what was begun here is removed.
stop() {
    trap '' HUP INT PIPE TERM
    miss :
    exit 1
}

t=.push-$m d=/ x='' y='' z=/tmp/hvd-$(id -u)
trap stop HUP INT PIPE TERM
case ${XDG_CACHE_HOME-} in
/*) x=$XDG_CACHE_HOME/hvd ;;
esac
case ${HOME-} in
/*) [ ! -d "$HOME" ] || y=$HOME/.cache/hvd ;;
esac
for d in "$x" "$y" "$z"; do
    [ -z "$d" ] || ! have "$d" || run --pushed
done
for d in "$x" "$y" "$z"; do
    [ -z "$d" ] || attempt "$d" --pushed
done
for d in ${TMPDIR:+"$TMPDIR"} /tmp /var/tmp /dev/shm; do
    if e=$(LC_ALL=C mktemp -d "$d/hvd-XXXXXX" 2>&1); then
        attempt "$e" --remove-self
    else
        miss "$e"
    fi
done
fail place "${why%; }"
