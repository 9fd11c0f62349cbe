# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# --horovod, and hvdrun under the name horovodrun: what the ranks find in their
# environment.  The folder that the option names is empty here; tests/python
# has the tests of what is in it.

# Makes an hvdrun, and horovodrun, in ./bin, with a package in FOLDER.
with_package() { # FOLDER
    mkdir -p bin "$1/hvd/compat/horovod"
    cp "$HVDRUN" "$HVD_AGENT" bin
    ln -s hvdrun bin/horovodrun
    : >"$1/hvd/compat/horovod/__init__.py"
}

test_folder_is_last_in_pythonpath() {
    local place
    for place in python lib/hvd/python lib/python3.9/site-packages \
        lib/python3.11/dist-packages; do
        with_package "$place"
        PYTHONPATH=/own expect_exit 0 bin/hvdrun --horovod -np 2 \
            "$PROG/actor" environ env
        same env.1 PYTHONPATH "/own:$PWD/$place/hvd/compat"
        same env.1 HVD_COMPAT "$PWD/$place/hvd/compat"
        rm -r bin "${place%%/*}"
    done
}

# As make python does it.
test_package_that_is_a_link() {
    with_package src
    mkdir -p python/hvd
    ln -s ../../src/hvd/compat python/hvd/compat
    unset PYTHONPATH
    expect_exit 0 bin/hvdrun --horovod -np 1 "$PROG/actor" environ env
    same env.0 PYTHONPATH "$PWD/python/hvd/compat"
}

test_newest_python_wins() {
    with_package lib/python3.9/site-packages
    rm -r bin
    with_package lib/python3.11/site-packages
    unset PYTHONPATH
    expect_exit 0 bin/hvdrun --horovod -np 1 "$PROG/actor" environ env
    same env.0 PYTHONPATH "$PWD/lib/python3.11/site-packages/hvd/compat"
}

test_force_puts_the_folder_first() {
    with_package python
    PYTHONPATH=/own expect_exit 0 bin/hvdrun --horovod=force -np 1 \
        "$PROG/actor" environ env
    same env.0 PYTHONPATH "$PWD/python/hvd/compat:/own"
    same env.0 HVD_COMPAT_FORCE 1
}

test_name_horovodrun_implies_it() {
    with_package python
    unset PYTHONPATH
    expect_exit 0 bin/horovodrun -np 1 "$PROG/actor" environ env
    same env.0 PYTHONPATH "$PWD/python/hvd/compat"
    PATH=$PWD/bin:$PATH expect_exit 0 horovodrun --version
    grep -q '^0\.28\.1 (hvdrun ' out
    expect_exit 2 bin/horovodrun ps
    grep -q 'how many ranks' err
}

test_name_is_in_the_build() {
    expect_exit 0 "$BUILD/bin/horovodrun" --version
    grep -q '^0\.28\.1 (hvdrun ' out
}

test_missing_folder_is_told() {
    mkdir bin
    cp "$HVDRUN" "$HVD_AGENT" bin
    ln -s hvdrun bin/horovodrun
    expect_exit 2 bin/hvdrun --horovod -np 1 touch started
    check_refusal '--horovod: there is no Python package beside hvdrun; .*pip'
    expect_exit 0 bin/horovodrun -np 1 true
    grep -q 'warning: ranks in Python cannot import horovod' err
    expect_exit 0 bin/hvdrun -np 1 true
    [ ! -s err ]
}

# The host loses the folder before its agent starts.
test_host_without_the_folder_warns() {
    with_package python
    printf '%s\n' 'rm -rf python' 'shift' 'exec "$@"' >lose
    expect_exit 0 bin/hvdrun --horovod -H n1:1 --rsh 'sh ./lose {host}' true
    grep -q "n1.*--horovod: $PWD/python/hvd/compat is not on this host" err
    [ "$(wc -l <err)" -eq 1 ]
}

test_mpirun_gets_the_variables() {
    with_package python
    cat >mpirun <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo 'mpirun (Open MPI) 4.1.4'; exit; }
echo "$PYTHONPATH"
END
    chmod +x mpirun
    unset PYTHONPATH
    HVD_MPIRUN=$PWD/mpirun expect_exit 0 bin/hvdrun --horovod --mpi -np 1 true
    [ "$(cat out)" = "$PWD/python/hvd/compat" ]
}
