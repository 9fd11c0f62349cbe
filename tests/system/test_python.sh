# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The package hvd for Python, without an array library but numpy.  The tests
# themselves are in tests/python.

PYTHON=${PYTHON:-/usr/bin/python3}

# Skips the test unless the package was built and Python has the modules.  Sets
# the array python to Python's command.
need_python() { # MODULE...
    local module
    compgen -G "$BUILD/python/hvd/_hvd*.so" >/dev/null ||
        skip "no Python with headers: install python3-dev"
    for module; do
        "$PYTHON" -c "import $module" 2>/dev/null ||
            skip "$PYTHON has no $module"
    done
    export PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1
    python=("$PYTHON")
    ! sanitized || preload
}

# Has the sanitizer's runtime loaded into Python, which is built without it,
# before the extension, or LIBRARY in another build.  PYTHONMALLOC: Python's own
# allocator would hide small blocks.
# detect_leaks: Python itself does not free everything.  quarantine_size_mb: the
# tests measure the memory in use.
preload() { # [LIBRARY]
    local runtime=${1:-} asan=detect_leaks=0:quarantine_size_mb=16
    ! sanitized || {
        runtime=$(ldd "$BUILD"/python/hvd/_hvd*.so |
            awk '$1 ~ /^lib(a|t|ub|clang_rt[.]a)san/ { printf "%s ", $3 }')
        [ "$runtime" ] || skip "the sanitizer has no shared library"
    }
    python=(env LD_PRELOAD="$runtime" PYTHONMALLOC=malloc
        "ASAN_OPTIONS=${ASAN_OPTIONS:-}:$asan" "$PYTHON")
}

# Runs a file of tests/python on N ranks.
python_job() { # N FILE [ARG...]
    local n=$1 file=$2
    shift 2
    expect_exit 0 "$HVDRUN" -np "$n" "${python[@]}" \
        "$ROOT/tests/python/$file" "$@"
}

test_python_neutral() {
    need_python numpy
    python_job 2 test_neutral.py
    ! sanitized || return 0 # other numbers of ranks find the same
    python_job 3 test_neutral.py
    expect_exit 0 "$PYTHON" "$ROOT/tests/python/test_neutral.py"
}

test_python_requests() {
    need_python numpy
    # Under ThreadSanitizer, what has several threads: the rest takes long.
    [ "${HVD_TEST_SAN:-}" != thread ] || {
        python_job 2 test_requests.py Callbacks Life Requests.test_threads \
            Requests.test_one_request_many_threads Requests.test_any_order
        return 0
    }
    python_job 2 test_requests.py
    sanitized || python_job 3 test_requests.py
}

# The stub says what the module has.
test_python_stub() {
    need_python
    expect_exit 0 "${python[@]}" "$ROOT/tests/python/test_stub.py"
}

# Allocations fail, one after the other.
test_python_failing_allocations() {
    ! sanitized || skip "the sanitizer has a malloc of its own"
    need_python numpy
    preload "$PROG/fail_alloc.so"
    python_job 1 test_alloc.py
    python_job 2 test_alloc.py
}

# Python's own allocator checks each block that it frees.
test_python_debug_allocator() {
    ! sanitized || skip "the sanitizer checks this"
    need_python numpy
    PYTHONMALLOC=debug python_job 2 test_requests.py
    PYTHONMALLOC=debug python_job 2 test_neutral.py
}

# The interpreter ends while requests are in flight, on one rank and on all.
test_python_exit_in_flight() {
    need_python numpy
    cat >exit.py <<'END'
import numpy, hvd, sys
hvd.init()
kept = [
    hvd.allreduce_async(numpy.ones(1000), name=f"{i}.{hvd.rank()}")
    for i in range(20)
]
kept[0].add_done_callback(lambda handle: None)
hvd.allreduce_async(numpy.ones(5), name=f"dropped.{hvd.rank()}")
print("ends")
END
    expect_exit 0 "$HVDRUN" -np 2 "${python[@]}" exit.py
    [ "$(grep -c ends out)" = 2 ]
}

# A rank that ends for an exception ends the job, with its traceback in the
# report.
test_python_exception() {
    need_python numpy
    cat >raise.py <<'END'
import numpy, hvd
hvd.init()
if hvd.rank() == 1:
    raise RuntimeError("no data")
try:
    hvd.allreduce(numpy.ones(3), name="x")
except hvd.HorovodInternalError as error:
    print("caught", error.status, error)
END
    expect_exit 1 "$HVDRUN" -np 2 "${python[@]}" raise.py
    grep -q 'RuntimeError: no data' err
    grep -q 'raise.py' err
}

# No rank uses the processor while it waits for a callback that does not come.
test_python_idle() {
    need_python numpy
    cat >idle.py <<'END'
import glob, time, numpy, hvd
hvd.init()
if hvd.rank() == 0:
    handle = hvd.allreduce_async(numpy.ones(3), name="x")
    handle.add_done_callback(lambda handle: None)
    hvd.broadcast_object(None)
    def switches():
        total = 0
        for status in glob.glob("/proc/self/task/*/status"):
            for line in open(status):
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
        return total
    before = switches()
    time.sleep(1)
    print("switches", switches() - before)
    hvd.broadcast_object(None)
    handle.wait()
else:
    hvd.broadcast_object(None)
    hvd.broadcast_object(None)
    hvd.allreduce_async(numpy.ones(3), name="x").wait()
END
    expect_exit 0 "$HVDRUN" -np 2 "${python[@]}" idle.py
    [ "$(sed -n 's/.*switches //p' out)" -lt 20 ]
}

test_python_main() {
    need_python
    expect_exit 0 "${python[@]}" -m hvd
    grep -q '^hvd  *[0-9]' out
    grep -q "^hvdrun  *$BUILD/bin/hvdrun" out
    grep -q '^shared memory  *yes' out
}

# Communicators that MPI's Split has made.
test_python_mpi_sets() {
    ! sanitized || skip "MPI's libraries are not built for it"
    need_python numpy mpi4py
    [ -e "$BUILD/lib/hvd/libhvd-mpi.so" ] || skip "built without MPI"
    expect_exit 0 "$HVDRUN" --mpi --oversubscribe -np 4 \
        "$PYTHON" "$ROOT/tests/python/mpi_sets.py"
    # mpirun may tag a line's end anew.
    [ "$(grep -o '>:ok' out | wc -l)" -eq 4 ]
}

# Prints the other Pythons from 3.10 on that have headers, one of each version:
# those in HVD_TEST_PYTHONS, else in PATH and among pyenv's versions.
other_pythons() {
    local python version seen=
    for python in ${HVD_TEST_PYTHONS:-$(compgen -c python3. | sort -u)
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3}; do
        version=$("$python" -c 'import sys
print("%d.%d" % sys.version_info[:2] if sys.version_info >= (3, 10) else "")' \
            2>/dev/null) || continue
        case " $seen $(python_version) " in
        *" $version "*) continue ;;
        esac
        seen="$seen $version"
        echo "$python"
    done
}

python_version() {
    "$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# Makes ./own, the package with an extension for a Python that has not the
# stable ABI of the one that was built.
own_extension() { # PYTHON
    local facts version
    version=$("$HVDRUN" --version | grep -oE '[0-9]+\.[0-9.]+')
    read -ra facts <<<"$(cd "$ROOT" && "$1" python/build_facts.py)"
    [ "${facts[0]:-}" ] || skip "$1 has no headers"
    mkdir -p own/hvd
    ln -s "$ROOT"/python/hvd/* "$BUILD"/python/hvd/{lib,include} own/hvd
    cc -std=c11 -D_GNU_SOURCE -I"$ROOT" -iquote "$ROOT/lib/base" -fPIC -shared \
        -DHVD_VERSION="\"$version\"" -isystem "${facts[0]}" "${facts[@]:2}" \
        -Wl,-rpath,"$BUILD/lib" -o "own/hvd/_hvd${facts[1]}" \
        "$ROOT"/python/ext/*.c "$BUILD/lib/libhvd.so"
    PYTHONPATH=$PWD/own
}

# The extension is loaded by later Pythons, and compiles for 3.10.
test_python_versions() {
    local python pythons version
    ! sanitized || skip "the plain build checks this"
    need_python
    pythons=$(other_pythons)
    [ "$pythons" ] || skip "no other Python from 3.10 on"
    cat >plain.py <<'END'
import array, sys, hvd
hvd.init()
mine = array.array("f", [1, 2.5, hvd.rank()])
assert memoryview(hvd.allreduce(mine, op=hvd.Sum)).tolist() == [2, 5, 1]
assert hvd.allgather_object("x" * hvd.rank()) == ["", "x"]
handle = hvd.broadcast_async(mine, root_rank=1, name="b")
assert memoryview(handle.wait())[2] == 1
assert not {"torch", "tensorflow"} & set(sys.modules)
hvd.shutdown()
END
    for python in $pythons; do
        PYTHONPATH=$BUILD/python
        version=$("$python" -c 'import sys; print(sys.version_info[:2] < (3, 11))')
        [ "$version" = False ] || own_extension "$python"
        expect_exit 0 "$python" -m hvd
        expect_exit 0 "$HVDRUN" -np 2 "$python" plain.py
        ! "$python" -c 'import numpy' 2>/dev/null ||
            expect_exit 0 "$HVDRUN" -np 2 "$python" \
                "$ROOT/tests/python/test_neutral.py"
    done
}
