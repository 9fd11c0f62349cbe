# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Programs that do not know of hvdrun, on several hosts; HVD_TEST_TORCH as in
# test_programs.sh.

PYTHON3=${HVD_TEST_TORCH:-/usr/bin/python3}

test_plain_torch_on_hosts() {
    sanitized && skip "Python is not built with sanitizers"
    "$PYTHON3" -c 'import importlib.util as u, sys
sys.exit(u.find_spec("torch") is None)' || skip "needs python3-torch"
    unset OMP_NUM_THREADS
    cluster_up 2
    expect_exit 0 login "$HVDRUN" -H n1:2,n2:2 --no-tag-output \
        "$PYTHON3" -B "$ROOT/tests/python/torch_env.py" train
    grep -qx 'trained on 4 ranks of 2' out
    cluster_down
}
