# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvd.torch.elastic in elastic jobs (--min-np): the cases of
# tests/python/torch_elastic.py, which checks every result itself.

PYTHON3=${PYTHON:-/usr/bin/python3}

need_torch() {
    sanitized && skip "Python is not built with sanitizers"
    [ -e "$BUILD/python/hvd/_hvd.abi3.so" ] || skip "needs make python"
    "$PYTHON3" -c 'import importlib.util as u, sys
sys.exit(u.find_spec("torch") is None)' || skip "needs python3-torch"
}

# Runs a case on $1 ranks, which must end well.
elastic() {
    local np=$1
    need_torch
    expect_exit 0 "$HVDRUN" -np "$np" --min-np 1 --no-tag-output \
        -x "PYTHONPATH=$BUILD/python" -x OMP_NUM_THREADS=1 \
        "$PYTHON3" -B "$ROOT/tests/python/torch_elastic.py" "${@:2}"
}

# Demands that $1 ranks are left, and that each has seen the sizes $2.
left() {
    [ "$(grep -c "of $1; \[$2\]$" out)" -eq "$1" ]
}

test_killed_in_backward() {
    elastic 3 every_step 1:7:backward
    left 2 2
}

test_killed_in_step() {
    elastic 3 every_third 2:10:step
    left 2 2
}

test_killed_around_a_commit() {
    elastic 3 every_step 2:5:commit 1:9:save
    left 1 '2, 1'
}

test_rank_0_and_another_are_killed() {
    elastic 4 every_step 0:6:backward 2:13:step
    left 2 '3, 2'
}

test_killed_at_any_moment() {
    local ms=$((RANDOM % 20))
    echo "after $ms ms"
    elastic 3 every_third "$((RANDOM % 3)):9:$ms"
    left 2 2
}

test_exceptions_without_a_death() {
    elastic 3 throws
}

test_sampler() {
    elastic 3 sampler 1:4:step
    grep -q '^all rows, 2 ranks$' out
}

test_process_sets() {
    elastic 4 sets 1:3:step
    [ "$(grep -c '^the pair is \[0, 2\]$' out)" -eq 3 ]
}

test_leaves_and_enters_itself() {
    elastic 3 rejoins
    [ "$(grep -c '^rejoined$' out)" -eq 2 ]
}

test_script_for_horovod() {
    need_torch
    PYTHONPATH=$BUILD/python expect_exit 0 "$HVDRUN" --horovod=force -np 3 --min-np 2 \
        -x PYTHONPATH -x DIE_RANK=0 -x OMP_NUM_THREADS=1 \
        "$PYTHON3" -B "$ROOT/tests/python/horovod_elastic.py"
    [ "$(grep -c ' of 2: epoch 6, loss 0\.' out)" -eq 2 ]
}

# A rank joins the training: with discovery, as horovodrun is called.
test_script_for_horovod_grows() {
    need_torch
    echo 2 >slots
    PYTHONPATH=$BUILD/python start job "$HVDRUN" --horovod=force -np 2 --min-np 2 \
        --max-np 3 --host-discovery-script 'echo localhost:$(cat slots)' \
        -x PYTHONPATH -x DIE_RANK=9 -x WAIT_FOR=3 -x OMP_NUM_THREADS=1 \
        "$PYTHON3" -B "$ROOT/tests/python/horovod_elastic.py"
    wait_for 'grep -q "size 2" job.out'
    echo 3 >slots
    finish job 0
    [ "$(grep -c ' of 3: epoch 6, loss 0\.' job.out)" -eq 3 ] ||
        fail "$(cat job.out job.err)"
    grep -q '2 -> 3 ranks (generation 2)' job.err
}
