# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What packages are made from: an installed tree that is stripped and needs no
# build folder, the archive of the sources, and the files in .ci/debian.

# run_make [VARIABLE=VALUE...] TARGET: as a user runs make in the sources.
run_make() {
    make -C "$ROOT" --no-print-directory "$@" >make.out 2>&1 ||
        fail "make $*: $(tail -n 5 make.out)"
}

# install_to [VARIABLE=VALUE...]: installs this build.
install_to() {
    sanitized && skip "the normal build is installed"
    command -v pkg-config >/dev/null || skip "no pkg-config"
    run_make BUILD="$BUILD" "$@" install-files
}

# Prints the programs and libraries below folder $1.
elf_files() {
    local file
    find "$1" -type f | sort | while read -r file; do
        [ "$(head -c 4 "$file" | tr -d '\0')" != $'\x7fELF' ] || echo "$file"
    done
}

test_installed_files_are_stripped() {
    local file
    install_to DESTDIR="$PWD/root" PREFIX=/opt/hvd
    elf_files root >files
    [ "$(wc -l <files)" -ge 4 ] || fail "only $(cat files)"
    while read -r file; do
        readelf -SW "$file" >sections
        absent '\.debug_|\.symtab' sections
        readelf -dW "$file" >dynamic
        absent 'TEXTREL' dynamic
        # code of the build folder would be found only on this machine
        absent "$BUILD|$ROOT" dynamic
    done <files
    # ... and on request are not
    install_to DESTDIR="$PWD/whole" PREFIX=/opt/hvd STRIP=:
    grep -q '\.debug_info' < <(readelf -SW whole/opt/hvd/lib/libhvd.so.0)
}

# Prints the path that --check-build gives for the part, controller or plane
# called $1; nothing if it cannot be used.
part_path() { # NAME
    python3 -c '
import json, sys
for facts in json.load(open("build.json")).values():
    for fact in facts if isinstance(facts, list) else []:
        if fact["name"] == sys.argv[1] and fact.get("available"):
            print(fact["path"])' "$1"
}

# Debian's folder for libraries, and that of other systems.
test_libraries_in_other_folders() {
    local arch dir file
    printf 'Host other\nHostName 127.0.0.1\nPort 1\n' >config
    arch=$(cc -print-multiarch 2>/dev/null || :)
    for dir in lib64 ${arch:+lib/$arch}; do
        install_to DESTDIR="$PWD/root" PREFIX=/usr LIBDIR="/usr/$dir"
        [ ! -e root/usr/lib/libhvd.so.0 ]
        [ "$(PKG_CONFIG_PATH=root/usr/$dir/pkgconfig \
            pkg-config --variable=libdir hvd)" = "/usr/$dir" ]
        # the loader looks there by itself
        absent rpath "root/usr/$dir/pkgconfig/hvd.pc"
        expect_exit 0 root/usr/bin/hvdrun --check-build --json
        mv out build.json
        [ "$(part_path libhvd)" = "$PWD/root/usr/$dir/libhvd.so.0" ] ||
            fail "$dir: libhvd is $(part_path libhvd)"
        for file in root/usr/"$dir"/hvd/*.so; do
            grep -qF "$PWD/$file" build.json || fail "$file was not found"
        done
        # hvdrun loads the one for ssh, and gets as far as a closed port
        if [ -e "root/usr/$dir/hvd/transport-ssh2.so" ]; then
            expect_exit 125 root/usr/bin/hvdrun -H other:1 --launcher ssh2 \
                --ssh-config config true
            grep -q 'cannot connect to 127.0.0.1 port 1' err
        fi
        # hvd-bench finds the library, too
        expect_exit 0 root/usr/bin/hvdrun -np 2 root/usr/bin/hvd-bench \
            allreduce --sizes 8 --iters 1
        rm -r root
    done
}

# Compiles the example of the tree in ./usr and runs it, on a machine that has
# lost the build folder.
without_build() {
    mount -n -t tmpfs none "$BUILD"
    [ ! -e "$BUILD/bin" ]
    cp -r usr/share/hvd/examples .
    # shellcheck disable=SC2046
    cc -O2 examples/train_digits.c examples/common.c -o examples/train \
        $(PKG_CONFIG_PATH=usr/lib/pkgconfig pkg-config --cflags --libs hvd) -lm
    expect_exit 0 usr/bin/hvdrun -np 2 --no-tag-output examples/train
    expect_exit 0 usr/bin/hvdrun --check-build --json
    mv out build.json
    [ "$(part_path libhvd)" = "$PWD/usr/lib/libhvd.so.0" ]
    [ ! -e usr/lib/hvd/transport-ssh2.so ] ||
        [ "$(part_path 'ssh, by libssh2')" = \
            "$PWD/usr/lib/hvd/transport-ssh2.so" ]
    [ ! -e usr/lib/hvd/libhvd-mpi.so ] ||
        grep -qF "$PWD/usr/lib/hvd/libhvd-mpi.so" build.json
}

test_installed_tree_needs_no_build_folder() {
    need_root
    [ -n "${PRIVATE:-}" ] || skip "there are no mount namespaces"
    install_to PREFIX="$PWD/usr"
    without_build
}

# The same sources give the same archive, here and from the archive itself, and
# it has all that make needs.
test_archive_of_the_sources() {
    local name
    sanitized && skip "the archive is the same"
    run_make BUILD="$PWD/one" dist
    run_make BUILD="$PWD/two" dist
    name=$(cd one && ls)
    [[ $name =~ ^hvdrun-[0-9.]+\.tar\.gz$ ]] || fail "it is called $name"
    cmp "one/$name" "two/$name"
    tar -xzf "one/$name"
    name=${name%.tar.gz}
    cd "$name"
    [ ! -e .git ]
    # without git, and beside what a build has made
    mkdir build cmd/__pycache__
    touch build/x cmd/x.o cmd/__pycache__/x
    make -s dist BUILD="$PWD/made"
    cmp "made/$name.tar.gz" "../one/$name.tar.gz"
    rm -r made
    # each file that a target needs is there, and one of them compiles
    make -n all fuzzers BUILD=build WITH_NCCL=no >plan
    grep -q -e '-o build/bin/hvdrun' plan
    make -s build/obj/lib/base/strv.o BUILD=build WITH_NCCL=no
    [ -s build/obj/lib/base/strv.o ]
}

# The folder is not in what is compiled there, if SOURCE_DATE_EPOCH is set.
test_same_objects_in_another_folder() {
    local name dir object=build/obj/lib/base/strv.o
    sanitized && skip "the archive is the same"
    run_make BUILD="$PWD/dist" dist
    name=$(cd dist && ls)
    name=${name%.tar.gz}
    for dir in here there/in/another; do
        mkdir -p "$dir"
        tar -xzf "dist/$name.tar.gz" -C "$dir"
        SOURCE_DATE_EPOCH=1700000000 CCACHE_DISABLE=1 make -s BUILD=build \
            WITH_NCCL=no -C "$dir/$name" "$object"
    done
    cmp "here/$name/$object" "there/in/another/$name/$object"
}

# An archive tells its age: by the variable that packagers set.
test_archive_has_the_given_time() {
    sanitized && skip "the archive is the same"
    SOURCE_DATE_EPOCH=1700000000 run_make BUILD="$PWD/one" dist
    TZ=UTC tar -tvzf one/*.tar.gz >list
    [ "$(grep -c ' 2023-11-14 22:13 ' list)" = "$(wc -l <list)" ]
    absent '/build/|\.o$|/\.git/' list
}

# Prints the packages in the list of .ci/packages that $1 names.
listed_packages() { # LIST
    sed -n "/^$1='/,/^'/p" "$ROOT/.ci/packages" | sed '1d;$d;s/ .*//'
}

# Prints the packages that the packages of Debian are built with.
build_depends() {
    sed -n '/^Build-Depends:/,/^$/p' "$ROOT/.ci/debian/control" |
        sed -n 's/^ \([a-z0-9.+-]*\).*/\1/p'
}

# .ci/debian says the same as the makefile, .ci/packages and libhvd.map.
test_package_files_agree() {
    local debian=$ROOT/.ci/debian version so package
    version=$(sed -n 's/^VERSION := //p' "$ROOT/Makefile")
    so=$(sed -n 's/^SOVERSION := //p' "$ROOT/Makefile")
    grep -q "^hvdrun ($version) " < <(sed 1q "$debian/changelog")
    grep -q "^libhvd.so.$so libhvd$so " "$debian/libhvd$so.symbols"
    sed -n 's/^ (symver)\([A-Z0-9_]*\) .*/\1/p' "$debian/libhvd$so.symbols" |
        sort >expected
    sed -n 's/^\(HVD[A-Z0-9_]*\) {.*/\1/p' "$ROOT/runtime/libhvd.map" | sort |
        cmp - expected
    { listed_packages build_packages
        listed_packages test_packages
        listed_packages wanted_packages; } | sort >known
    build_depends | sort >needed
    [ "$(wc -l <needed)" -ge 8 ]
    # gcc and libc are always there
    for package in $(listed_packages build_packages); do
        case $package in gcc | libc6-dev) continue ;; esac
        grep -qx "$package" needed || fail "control lacks $package"
    done
    while read -r package; do
        [ "$package" = debhelper-compat ] || grep -qx "$package" known ||
            fail ".ci/packages lacks $package"
    done <needed
}
