# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Which GPU each rank gets.  The machine seems to have three: for one test,
# files like those of a driver are mounted over /proc/driver.

three_gpus() {
    local bus minor=0
    unset CUDA_VISIBLE_DEVICES
    need_root
    [ -n "$PRIVATE" ] || skip "needs mount namespaces"
    mount -n -t tmpfs gpus /proc/driver || skip "/proc/driver cannot be mounted on"
    for bus in 17 65 b1; do
        mkdir -p "/proc/driver/nvidia/gpus/0000:$bus:00.0"
        printf 'Model: \t Test\nGPU UUID: \t GPU-%s\nDevice Minor: \t %d\n' \
            $bus $minor >"/proc/driver/nvidia/gpus/0000:$bus:00.0/information"
        minor=$((minor + 1))
    done
}

# ranks EXPECTED OPTION...: fails the test unless the ranks of hvdrun OPTION...
# print the lines EXPECTED, "RANK: hvd_local_gpu of CUDA_VISIBLE_DEVICES" each.
ranks() {
    local expected=$1
    shift
    expect_exit 0 "$HVDRUN" --no-tag-output "$@" "$PROG/coll" gpu
    sort -o out out
    printf '%s\n' "$expected" | diff - out
}

test_ranks_share_when_nothing_is_said() {
    three_gpus
    ranks $'0: 0 of all\n1: 1 of all\n2: 2 of all\n3: 0 of all' -np 4
    ranks $'0: 0 of all\n1: 2 of all' -np 2 --gpus-per-rank 2
}

test_an_inherited_list() {
    three_gpus
    export CUDA_VISIBLE_DEVICES=2,GPU-17
    ranks $'0: 0 of 2,GPU-17\n1: 1 of 2,GPU-17\n2: 0 of 2,GPU-17' -np 3
    ranks $'0: 0 of GPU-b1\n1: 0 of GPU-17' -np 2 --bind-gpu
    export CUDA_VISIBLE_DEVICES=MIG-a,MIG-b
    ranks $'0: 0 of MIG-a\n1: 0 of MIG-b' -np 2 --bind-gpu
    export CUDA_VISIBLE_DEVICES=
    expect_exit 0 "$HVDRUN" --no-tag-output -np 1 sh -c 'echo "${HVD_GPU-none}"'
    [ "$(cat out)" = none ]
}

test_bound_ranks() {
    three_gpus
    ranks $'0: 0 of GPU-17\n1: 0 of GPU-65\n2: 0 of GPU-b1' -np 3 --bind-gpu
    ranks '0: 0 of GPU-17,GPU-65,GPU-b1' -np 1 --bind-gpu --gpus-per-rank 3
}

test_more_bound_ranks_than_gpus() {
    three_gpus
    expect_exit 125 "$HVDRUN" -np 4 --bind-gpu touch started
    one_line err
    grep -q '4 ranks with 1 GPU each need 4 GPUs, this host has 3; use fewer' err
    [ ! -e started ]
    ranks $'0: 0 of GPU-17\n1: 0 of GPU-65\n2: 0 of GPU-b1\n3: 0 of GPU-17' \
        -np 4 --bind-gpu --oversubscribe-gpu
    expect_exit 125 "$HVDRUN" -np 1 --bind-gpu --oversubscribe-gpu \
        --gpus-per-rank 4 touch started
    grep -q 'a rank needs 4 GPUs, this host has 3' err
    [ ! -e started ]
}

test_from_a_config_file() {
    three_gpus
    printf 'bind-gpu: true\noversubscribe-gpu: true\n' >c.yaml
    expect_exit 0 "$HVDRUN" -np 4 --config-file c.yaml --dry-run true
    [ "$(awk '/^[0-3] /{printf "%s ", $5}' out)" = '0 1 2 0 ' ]
    absent 'would fail' out
    expect_exit 0 "$HVDRUN" -np 4 --bind-gpu --dry-run true
    grep -q '^would fail: [^ ]*: 4 ranks with 1 GPU' out
}
