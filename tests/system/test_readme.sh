# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The commands that README.md gives a user of an installed hvdrun work.

installed() {
    sanitized && skip "the normal build is installed"
    command -v pkg-config >/dev/null || skip "no pkg-config"
    make -s -C "$ROOT" BUILD="$BUILD" PREFIX="$PWD/usr" install-files
    export PKG_CONFIG_PATH=$PWD/usr/lib/pkgconfig PATH=$PWD/usr/bin:$PATH
}

test_the_program_of_the_readme() {
    installed
    sed -n '/^## Writing a program$/,$p' "$ROOT/README.md" |
        sed -n '/^```c$/,/^```$/p' | sed '1d;/^```$/,$d' >train.c
    [ -s train.c ] || fail "README.md has no program"
    # shellcheck disable=SC2046
    cc -Wall -Wextra -Werror train.c $(pkg-config --cflags --libs hvd) \
        -o train
    expect_exit 0 hvdrun -np 2 ./train
    [ "$(wc -l <out)" -eq 1 ] || fail "not one line: $(cat out)"
}

test_installed_examples_compile_and_run() {
    local name
    installed
    cp -r usr/share/hvd/examples .
    for name in train_digits anomaly_autoencoder; do
        # shellcheck disable=SC2046
        (cd examples && cc -O2 $name.c common.c \
            $(pkg-config --cflags --libs hvd) -lm -o $name)
        expect_exit 0 hvdrun -np 2 --no-tag-output examples/$name
    done
}
