# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What a rank on another host gets: directory, arguments, environment and
# limits; and the messages if one of them is missing there.

SHELLS=bash,dash,zsh,fish,csh,ash

need_shells() {
    local shell
    for shell in zsh fish tcsh busybox; do
        command -v $shell >/dev/null || skip "$shell is not installed"
    done
}

awkward_args() {
    printf '%s\0' 'a  b' '$HOME' "it's" '*' '' ' ' '\' '"' '`id`' '!!' \
        '~' '-n' $'new\nline' $'tab\t' 'ü' $'\xff\xfe' '$(id)' '%PATH%' '#'
}

test_worker_argv_whatever_the_shell() {
    local rank
    need_shells
    cluster_up 6 --shell $SHELLS --noise 'echo some noise'
    mapfile -d '' args < <(awkward_args)
    expect_exit 0 login "$HVDRUN" -H 'n[1-6]' "$PROG/actor" argv argv \
        "${args[@]}"
    for rank in 0 1 2 3 4 5; do
        awkward_args | cmp - argv.$rank
    done
    [ ! -s out ]
    [ ! -s err ]
    cluster_down
}

test_worker_environment_whatever_the_shell() {
    local rank big
    need_shells
    cluster_up 6 --shell $SHELLS --noise 'echo some noise'
    big=$(head -c 100000 /dev/zero | tr '\0' x)
    expect_exit 0 login env 'with.dots=1' QUOTES="it's \"q\"" EMPTY= \
        LINES_=$'one\ntwo' UTF='grün' BIN=$'\xff\xfe' EXCL='a!b$c`d\' \
        BIG1="$big" BIG2="$big" \
        "$HVDRUN" -H 'n[1-6]' "$PROG/actor" environ env
    for rank in 0 1 2 3 4 5; do
        same env.$rank 'with\.dots' 1
        same env.$rank QUOTES "it's \"q\""
        same env.$rank EMPTY ''
        same env.$rank UTF 'grün'
        same env.$rank BIN $'\xff\xfe'
        same env.$rank EXCL 'a!b$c`d\'
        same env.$rank BIG1 "$big"
        same env.$rank BIG2 "$big"
        [ "$(var env.$rank LINES_ | tr '\1' '\n')" = $'one\ntwo' ]
        same env.$rank HVD_RANK $rank
        same env.$rank HVD_HOSTNAME "n$((rank + 1))"
    done
    cluster_down
}

test_worker_behind_much_noise() {
    cluster_up 2 --noise 'seq 5000; seq 5000 >&2'
    expect_exit 0 login "$HVDRUN" --no-tag-output -H n1,n2 uname -n
    [ "$(sort out | tr '\n' ' ')" = 'n1 n2 ' ]
    [ ! -s err ] || fail "$(head -c 500 err)"
    cluster_down
}

# Ranks get the environment of hvdrun but for the variables that describe its
# host.
test_worker_environment_rule() {
    cluster_up 1
    faulty sshd n1 stop
    faulty sshd n1 start 'SetEnv ONLY_THERE=1'
    expect_exit 0 login env MINE=1 HOROVOD_RANK=5 RANK=7 OLDPWD=/x \
        SSH_CONNECTION=a SSH_AUTH_SOCK=/nowhere CUDA_VISIBLE_DEVICES=7 \
        'BASH_FUNC_f%%=() { :; }' HOSTNAME=login DISPLAY=:1 \
        XDG_RUNTIME_DIR=/run/user/0 TMPDIR=/nowhere \
        "$HVDRUN" -x GIVEN=2 -H n1 "$PROG/actor" environ env
    same env.0 MINE 1
    same env.0 GIVEN 2
    same env.0 HOROVOD_RANK 0
    same env.0 RANK 0
    tr '\0' '\n' <env.0 >names
    absent '^OLDPWD=' names
    absent '^BASH_FUNC_f' names
    absent '^SSH_AUTH_SOCK=' names
    absent '^CUDA_VISIBLE_DEVICES=7' names
    absent '^HOSTNAME=login' names
    [ "$(grep -c '^PATH=' names)" -eq 1 ]
    cluster_down
}

test_worker_environment_switched_off() {
    cluster_up 1
    printf 'FILED=3\n' >vars
    expect_exit 0 login env MINE=1 PASSED=4 "$HVDRUN" --no-env \
        --env-file vars -x GIVEN=2 -x PASSED -H n1 "$PROG/actor" environ env
    tr '\0' '\n' <env.0 >names
    absent '^MINE=' names
    same env.0 FILED 3
    same env.0 GIVEN 2
    same env.0 PASSED 4
    cluster_down
}

test_worker_directory() {
    cluster_up 2
    mkdir 'a dir $x'
    expect_exit 0 login "$HVDRUN" --no-tag-output -H n1,n2 pwd
    [ "$(sort -u out)" = "$PWD" ]
    expect_exit 0 login "$HVDRUN" --no-tag-output -H n1,n2 \
        --wdir "$PWD/a dir \$x" pwd
    [ "$(sort -u out)" = "$PWD/a dir \$x" ]
    cluster_down
}

test_worker_directory_is_missing_on_one_host() {
    cluster_up 3
    on n1 mkdir /tmp/work
    on n3 mkdir /tmp/work
    expect_exit 125 login "$HVDRUN" --wdir /tmp/work -H n1,n2,n3 \
        sh -c 'touch started.$HVD_RANK; exec sleep 1000'
    tells '(host )?n2.*/tmp/work'
    ours >log
    absent 'n1\b\|n3\b' log
    [ "$(wc -l <log)" -le 2 ]
    on n1 rm -r /tmp/work
    on n3 rm -r /tmp/work
    cluster_down
}

test_worker_program_is_missing_on_one_host() {
    cluster_up 3
    on n1 cp /bin/sleep /tmp/prog
    on n3 cp /bin/sleep /tmp/prog
    expect_exit 127 login "$HVDRUN" --grace 2 -H n1,n2,n3 /tmp/prog 1000
    tells 'n2.*/tmp/prog|/tmp/prog.*n2'
    on n2 sh -c 'echo data >/tmp/prog'
    expect_exit 126 login "$HVDRUN" --grace 2 -H n1,n2,n3 /tmp/prog 1000
    tells 'n2.*/tmp/prog|/tmp/prog.*n2'
    on n1 rm /tmp/prog
    on n2 rm /tmp/prog
    on n3 rm /tmp/prog
    expect_exit 127 login "$HVDRUN" -H n1,n2,n3 nosuchprogram
    tells 'nosuchprogram'
    cluster_down
}

test_worker_library_is_missing_on_one_host() {
    local host
    cluster_up 2
    for host in n1 n2; do
        on $host mkdir -p /tmp/a/tests/prog
        on $host cp "$PROG/coll" /tmp/a/tests/prog
    done
    on n1 cp -r "$BUILD/lib" /tmp/a
    sanitized || expect_exit 127 login "$HVDRUN" --grace 2 -H n1,n2 \
        /tmp/a/tests/prog/coll topo
    sanitized || tells 'n2'
    sanitized || grep -q 'libhvd.so' err
    on n1 rm -r /tmp/a
    on n2 rm -r /tmp/a
    cluster_down
}

test_worker_limits() {
    cluster_up 1
    # (AddressSanitizer would set the limit of core dumps.)
    expect_exit 0 login bash -c 'ulimit -Sn 777; ulimit -Sc 4242; \
        exec "$@"' x env ASAN_OPTIONS="${ASAN_OPTIONS-}:disable_coredump=0" \
        "$HVDRUN" --no-tag-output -H n1 \
        bash -c 'ulimit -n; ulimit -c'
    [ "$(cat out)" = $'777\n4242' ] || fail "$(cat out)"
    cluster_down
}

test_worker_locale_does_not_matter() {
    cluster_up 1
    faulty sshd n1 stop
    faulty sshd n1 start 'SetEnv LC_ALL=tr_TR.UTF-8 LANG=xx_YY'
    expect_exit 127 login env LC_ALL=de_DE.UTF-8 "$HVDRUN" -H n1 nosuchprogram
    tells 'not found'
    expect_exit 0 login env LC_ALL=C.UTF-8 "$HVDRUN" --no-tag-output -H n1 \
        sh -c 'echo $LC_ALL'
    [ "$(cat out)" = C.UTF-8 ]
    cluster_down
}

# While a job runs, ps on no host shows its environment or arguments, except in
# the command lines of hvdrun, where the user typed them, and of the rank.
test_worker_secrets_are_not_in_ps() {
    local host
    cluster_up 2
    start_on login job env SECRET_TOKEN=hunter2hunter2 "$HVDRUN" -H n1,n2 \
        -x OTHER=hunter3hunter3 sh -c 'touch up.$HVD_RANK
        while [ ! -e go ]; do sleep 0.05; done' argument-not-for-ps
    wait_for '[ -e up.0 ] && [ -e up.1 ]'
    for host in login n1 n2; do
        on $host ps -eo comm=,args= >ps.$host
        absent 'hunter2' ps.$host
    done
    grep -v '^hvdrun' ps.login >others
    absent 'hunter3' others
    grep -v '^sh' ps.n1 >others
    absent 'hunter3\|argument-not-for-ps' others
    grep -v '^sh' ps.n2 >others
    absent 'hunter3\|argument-not-for-ps' others
    touch go
    finish job 0
    cluster_down
}

# The command line that the login shell runs is constant: it holds nothing of
# the job.
test_worker_nothing_is_said_to_the_login_shell() {
    cluster_up 1 --noise 'set -- "$BASH_EXECUTION_STRING"
        echo "$1" >>/tmp/asked'
    expect_exit 0 login env MINE=1 "$HVDRUN" -H n1 -x A=1 echo one
    expect_exit 0 login "$HVDRUN" --launcher openssh -H n1 -x B=1 echo two
    [ "$(on n1 sort -u /tmp/asked | wc -l)" -eq 1 ] ||
        fail "$(on n1 cat /tmp/asked)"
    on n1 rm /tmp/asked
    cluster_down
}
