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

# ci_commands KEY: prints the commands of the YAML blocks of docs/ci.md that are
# lists or strings with that key, as a shell script for each block.
ci_commands() {
    python3 - "$ROOT/docs/ci.md" "$1" <<'END'
import re
import sys
import yaml


def texts(value, key):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield "\n".join(inner) if isinstance(inner, list) else inner
            else:
                yield from texts(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)


with open(sys.argv[1], encoding="utf-8") as page:
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read(), re.M | re.S):
        for text in texts(yaml.safe_load(block), sys.argv[2]):
            print(text)
END
}

# The jobs of docs/ci.md are YAML and shell, and their smoke tests pass.
test_ci_jobs() {
    python3 -c 'import yaml' 2>/dev/null || skip 'no python3-yaml'
    installed
    ci_commands run >github
    ci_commands before_script >before
    ci_commands script >gitlab
    for script in github before gitlab; do
        [ -s $script ] && bash -n $script
    done
    sed -n '/^## Writing a program$/,$p' "$ROOT/README.md" |
        sed -n '/^```c$/,/^```$/p' | sed '1d;/^```$/,$d' >train.c
    bash -e gitlab
    [ -s out/rank.0/stdout ]
    grep '^cc\|^hvdrun' github | cmp - gitlab
}
