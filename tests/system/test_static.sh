# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What STATIC=1 builds works where there is no library: in a root directory of
# its own.

STATIC_HVDRUN=$BUILD/tests/static/hvdrun

need_static() {
    sanitized && skip "a sanitizer has no static form"
    [ -e "$STATIC_HVDRUN" ] || skip "no static libraries"
}

# Makes ./root, which holds hvdrun, its agent, actor, /dev/null and nothing
# else.
empty_root() {
    need_static
    need_root
    [ -n "$PRIVATE" ] || skip "needs mount namespaces"
    mkdir -p root/bin root/dev
    cp "$STATIC_HVDRUN" "$HVD_AGENT" "$BUILD/tests/static/actor" root/bin
    touch root/dev/null
    mount -n --bind /dev/null root/dev/null
}

in_root() { # EXIT COMMAND...
    local want=$1
    shift
    expect_exit "$want" env -i HVD_TEST_TOKEN="$HVD_TEST_TOKEN" \
        "$(command -v chroot)" root "$@"
}

test_it_needs_no_loader() {
    need_static
    expect_exit 0 readelf -lW "$STATIC_HVDRUN"
    absent INTERP out
    expect_exit 0 readelf -dW "$STATIC_HVDRUN"
    absent NEEDED out
}

test_a_job_in_an_empty_root() {
    empty_root
    in_root 0 /bin/hvdrun -np 2 /bin/hvdrun --version
    sort out >sorted
    "$HVDRUN" --version | sed 'h;s/^/[0]<stdout>:/;p;g;s/^/[1]<stdout>:/' |
        diff - sorted
    [ ! -s err ]
    in_root 0 /bin/hvdrun -np 2 -H localhost,127.0.0.1 /bin/actor environ /env
    same root/env.1 HVD_LOCAL_RANK 1
    in_root 127 /bin/hvdrun -np 2 /bin/nosuch
    one_line err
}

# libhvd works on a machine that has a C library but none of the libraries that
# hvdrun uses.
test_libhvd_beside_a_c_library() {
    local f
    empty_root
    cp --parents "$PROG/coll" root
    cp -L --parents "$BUILD/lib/libhvd.so.0" root
    ldd "$PROG/coll" | grep -o '/[^ ]*' | grep -v libhvd | while read -r f; do
        cp -L --parents "$f" root
    done
    in_root 0 /bin/hvdrun -np 2 -x LD_LIBRARY_PATH="$BUILD/lib" \
        "$PROG/coll" sum 1000 3
}

test_no_dev_null() {
    empty_root
    umount -n root/dev/null
    rm root/dev/null
    in_root 125 /bin/hvdrun -np 1 /bin/hvdrun --version
    one_line err
    grep -q 'open /dev/null: No such file' err
}

test_what_it_cannot_do_is_told() {
    empty_root
    in_root 0 /bin/hvdrun --check-build
    grep -q '^    \[X\] hvd-agent: /bin/hvd-agent$' out
    grep -q '^    \[ \] ssh, by libssh2: this hvdrun is linked statically' out
    in_root 125 /bin/hvdrun -H 192.0.2.1 /bin/hvdrun --version
    one_line err
    grep -q 'there is no ssh program here, and libssh2 cannot be used: ' err
}

# The static hvdrun resolves names by /etc/hosts and DNS, whatever
# nsswitch.conf says.
test_names_of_hosts() {
    empty_root
    mkdir root/etc
    echo 'hosts: nosuch_module [NOTFOUND=return]' >root/etc/nsswitch.conf
    echo '127.0.0.1 known' >root/etc/hosts
    in_root 1 /bin/hvdrun doctor -H known,unknown.invalid
    grep -q 'this machine knows the addresses of 1 of 2' out
}

# The static hvdrun refuses --launcher ssh2 in one line and suggests openssh.
test_ssh2_is_refused_in_one_line() {
    need_static
    command -v ssh >/dev/null || skip "needs ssh"
    expect_exit 125 "$STATIC_HVDRUN" --agent "$HVD_AGENT" --launcher ssh2 \
        -H 192.0.2.1 true
    one_line err
    grep -q 'linked statically and loads no libraries; try --launcher openssh' \
        err
}

test_ranks_with_libhvd() {
    need_static
    expect_exit 0 "$STATIC_HVDRUN" --agent "$HVD_AGENT" -np 3 "$PROG/coll" \
        sum 1000 3
}

# It has no server for --http, and says so.
test_http_is_refused_in_one_line() {
    need_static
    expect_exit 2 "$STATIC_HVDRUN" --agent "$HVD_AGENT" --http 0 -np 1 \
        touch "$PWD/started"
    check_refusal '^hvdrun: error: --http 0: this hvdrun is linked statically'
}
