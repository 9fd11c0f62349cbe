# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvd.elastic without a framework: the cases of tests/python/elastic_states.py.

PYTHON3=${PYTHON:-/usr/bin/python3}

# Runs a case on 3 ranks with more options of hvdrun.
states() {
    sanitized && skip "Python is not built with sanitizers"
    [ -e "$BUILD/python/hvd/_hvd.abi3.so" ] || skip "needs make python"
    expect_exit 0 "$HVDRUN" -np 3 --no-tag-output "${@:2}" \
        -x "PYTHONPATH=$BUILD/python" \
        "$PYTHON3" -B "$ROOT/tests/python/elastic_states.py" "$1"
}

test_newest_state() {
    states newest
    [ "$(grep -c '^newest ok$' out)" -eq 3 ]
}

test_interrupt() {
    states interrupted
    states interrupted --min-np 3
    [ "$(grep -c '^interrupted ok$' out)" -eq 3 ]
}

test_death() {
    states dies --min-np 1
    [ "$(sort out)" = $'rank 1 is 0, [2]\nrank 2 is 1, [2]' ]
}

test_wrong_callback() {
    states wrong --min-np 1
    [ "$(grep -c '^wrong ok$' out)" -eq 2 ]
}

test_errors_without_end() {
    states fails
    states fails --min-np 2
    [ "$(grep -c '^fails ok$' out)" -eq 3 ]
}

test_leaving() {
    states leaves -H a:2,b:1 --rsh 'env PLAYED={host}' --min-np 2 \
        --preempt-file going
    [ "$(grep -c '^leaves ok$' out)" -eq 3 ]
    grep -q '3 -> 2 ranks (generation 2)' err
}
