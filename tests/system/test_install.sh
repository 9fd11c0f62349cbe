# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# make install and uninstall work, the installed files are what a user needs,
# and make decides rightly what to build where there is no MPI.

install_to() {
    sanitized && skip "the normal build is installed"
    command -v pkg-config >/dev/null || skip "no pkg-config"
    make -C "$ROOT" --no-print-directory BUILD="$BUILD" \
        DESTDIR="$PWD/root" PREFIX=/opt/hvd "$1" >make.out 2>&1 ||
        fail "$(tail -n 5 make.out)"
}

# Installs below ./root and sets the variables for pkg-config.  `make install`
# would build first, in the directory that other tests use.
installed_tree() {
    install_to install-files
    prefix=$PWD/root/opt/hvd
    export PKG_CONFIG_SYSROOT_DIR=$PWD/root
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
}

write_program() {
    cat >train.c <<'C'
#include <hvd.h>
#include <stdio.h>

int main(void)
{
    float x = 1;

    if (hvd_init() || hvd_allreduce(&x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL))
        return 1;
    printf("sum %g\n", x);
    return hvd_shutdown() != 0;
}
C
}

test_install_and_build_a_program() {
    local prefix
    installed_tree
    write_program
    # shellcheck disable=SC2046
    cc train.c -o train $(pkg-config --cflags --libs hvd)
    export LD_LIBRARY_PATH=$prefix/lib
    expect_exit 0 "$prefix/bin/hvdrun" -np 3 --no-tag-output ./train
    [ "$(sort -u out)" = 'sum 3' ]
    expect_exit 0 "$prefix/bin/hvd-bench" allreduce --sizes 8 --iters 1
    [ "$(pkg-config --modversion hvd)" = \
        "$("$prefix/bin/hvdrun" --version | grep -oE '[0-9]+\.[0-9.]+')" ]
}

test_header_compiles_as_cxx_and_c99() {
    local prefix
    installed_tree
    write_program
    # shellcheck disable=SC2046
    cc -std=c99 -pedantic -Wall -Wextra -Werror -c train.c -o /dev/null \
        $(pkg-config --cflags hvd)
    command -v c++ >/dev/null || skip "no C++ compiler"
    cp train.c train.cc
    # shellcheck disable=SC2046
    c++ -std=c++11 -Wall -Wextra -Werror -c train.cc -o /dev/null \
        $(pkg-config --cflags hvd)
}

test_man_pages_are_installed() {
    local prefix page
    installed_tree
    for page in man1/hvdrun.1 man1/hvd-bench.1 man5/hvd-hostfile.5 \
        man3/libhvd.3 man3/hvd_init.3 man3/hvd_allreduce.3 man7/hvd-env.7; do
        [ -e "$prefix/share/man/$page" ] || fail "no $page"
    done
}

test_licence_and_documents_are_installed() {
    local prefix file
    installed_tree
    for file in LICENSE docs/security.md docs/gpu.md docs/mpi.md; do
        cmp "$ROOT/$file" "$prefix/share/doc/hvd/${file##*/}"
    done
}

test_completions_are_installed() {
    local prefix
    installed_tree
    grep -q '^complete -F _hvdrun hvdrun' \
        "$prefix/share/bash-completion/completions/hvdrun"
    head -n 1 "$prefix/share/zsh/site-functions/_hvdrun" |
        grep -q '^#compdef hvdrun'
    grep -q 'complete -c' "$prefix/share/fish/vendor_completions.d/hvdrun.fish"
}

test_uninstall_leaves_nothing() {
    [ -w "$BUILD" ] || skip "the build directory is somebody else's"
    installed_tree
    install_to uninstall
    find root ! -type d >left
    [ ! -s left ] || fail "left: $(head -n 5 left)"
}

# make_flags [VARIABLE=VALUE...]: runs only the part of make that decides what
# to build.
make_flags() {
    env -u MPICC make -C "$ROOT" --no-print-directory BUILD="$PWD/build" \
        "$@" "$PWD/build/flags" "$PWD/build/plugins" >out 2>err
}

test_build_without_mpi() {
    mkdir -p build/lib/hvd
    touch build/lib/hvd/libhvd-mpi.so
    make_flags -s WITH_MPI=auto MPICC="$PWD/none"
    [ "$(cat out)" = \
        "there is no $PWD/none: building without libhvd-mpi.so" ]
    [ ! -e build/lib/hvd/libhvd-mpi.so ] || fail "an old plug-in is there"
    make_flags -s WITH_MPI=auto MPICC="$PWD/none"
    cat out err >said
    [ ! -s said ]
    rm -r build
    make_flags -s WITH_MPI=no
    cat out err >said
    [ ! -s said ]
    rm -r build
    ! make_flags WITH_MPI="$PWD/none" || fail "WITH_MPI=/path: exit 0"
    grep -q "^there is no $PWD/none/bin/mpicc: install one" err
    ! make_flags WITH_MPI=yes MPICC=none || fail "WITH_MPI=yes: exit 0"
    grep -q '^there is no none: install one' err
    [ ! -s out ]
    [ ! -e build ]
}
