# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The backend "hvd" of torch.distributed.

PYTHON=/usr/bin/python3

need_torch() {
    sanitized && skip "Python does not load libraries that have sanitizers"
    [ -e "$BUILD"/python/hvd/torch/__init__.py ] || skip "no package: make python"
    "$PYTHON" -c 'import torch' 2>/dev/null || skip "no Python module torch"
    export PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
}

functions_on() { # RANKS
    need_torch
    expect_exit 0 "$HVDRUN" -np "$1" "$PYTHON" \
        "$ROOT/tests/python/torch_distributed.py"
    [ "$(grep -cE ':OK( \(skipped=[0-9]+\))?$' err)" -eq "$1" ]
}

test_functions_on_two_ranks() {
    functions_on 2
}

test_functions_on_three_ranks() {
    functions_on 3
}

test_without_hvdrun() {
    need_torch
    MASTER_ADDR=127.0.0.1 MASTER_PORT=0 RANK=0 WORLD_SIZE=2 \
        expect_exit 1 "$PYTHON" -c '
import datetime
import torch.distributed as dist
import hvd.torch.distributed
dist.init_process_group(
    "hvd", store=dist.HashStore(), rank=0, world_size=2)'
    grep -q "the group has 2 ranks, but hvdrun.s job has 1; .*hvdrun -np 2" err
}
