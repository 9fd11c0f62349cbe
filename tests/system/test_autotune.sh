# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# --autotune, on both planes: the log is well formed and ends with the best
# setting, results stay right while settings change (hvd-bench checks all
# results), and wrong knobs are refused.

# tuned ARG...: runs bursts under hvdrun ARG..., long enough to be tuned.
tuned() {
    "$HVDRUN" -np 2 --no-tag-output --autotune \
        --autotune-steps-per-sample 2 --autotune-log-file "$PWD/log.csv" \
        "$@" "$HVD_BENCH" allreduce --burst 24 --sizes 4K --iters 150 \
        --warmup 0 >bench.out || fail "hvd-bench: $(cat bench.out)"
}

HEAD=sample,phase,tensor_fusion_threshold,fused_tensor_max
HEAD+=,tcp_alpha_percent,score_q1,score_q3,score

# Fails unless log.csv has a header, numbered rows of eight fields, the phases
# in order, and `best` in the last row only, with a setting that was tried.
check_log() {
    [ "$(head -n 1 log.csv)" = "$HEAD" ] || fail "$(head -n 1 log.csv)"
    awk -F, 'NR == 1 { next }
        NF != 8 || $1 != NR - 1 || seen_best { exit 1 }
        $6 > $8 || $8 > $7 || $8 <= 0 { exit 1 }
        { setting = $3 "," $4 "," $5 }
        $2 == "best" { seen_best = 1; if (!tried[setting]) exit 1 }
        $2 != "best" && $2 != "warmup" && $2 != "search" &&
            $2 != "verify" { exit 1 }
        $2 < last && !($2 == "best" || last == "warmup") { exit 1 }
        { tried[setting] = 1; last = $2; rows++ }
        END { if (!seen_best || rows < 5) exit 1 }' log.csv ||
        fail "log: $(cat log.csv)"
}

test_log_in_shared_memory() {
    tuned
    check_log
    [ "$(grep -c ',warmup,134217728,262144,100,' log.csv)" -eq 3 ] ||
        fail "$(cat log.csv)"
    awk -F, 'NR > 1 && $5 != 100 { exit 1 }' log.csv || fail 'TCP is tuned'
}

test_log_over_tcp() {
    HVD_FORCE_TCP=1 tuned
    check_log
}

test_pinned_threshold_stays() {
    tuned --fusion-threshold-mb 1 --autotune-warmup-samples 1
    check_log
    awk -F, 'NR > 1 && $3 != 1048576 { exit 1 }' log.csv ||
        fail "not pinned: $(cat log.csv)"
    [ "$(grep -c ,warmup, log.csv)" -eq 1 ]
}

test_too_few_samples_keep_the_defaults() {
    tuned --autotune-bayes-opt-max-samples 7
    [ "$(sed -n 2p log.csv | cut -d, -f2-5)" = best,134217728,262144,100 ]
    [ "$(wc -l <log.csv)" -eq 2 ]
}

test_off_writes_nothing() {
    tuned --no-autotune
    [ ! -e log.csv ]
}

test_knob_of_one_rank() {
    # shellcheck disable=SC2016 # the rank's shell
    "$HVDRUN" -np 2 --no-tag-output sh -c \
        'HVD_AUTOTUNE=$HVD_RANK exec "$@"' - "$HVD_BENCH" allreduce \
        --burst 8 --sizes 4K --iters 50 >bench.out 2>err ||
        fail "$(cat bench.out err)"
    grep -q 'HVD_AUTOTUNE is not the same on all ranks' err
}

test_log_that_cannot_be_opened() {
    expect_exit 1 "$HVDRUN" -np 2 --autotune --autotune-log-file \
        "$PWD/none/log.csv" "$HVD_BENCH" allreduce --burst 8 --sizes 4K
    grep -q "HVD_AUTOTUNE_LOG: open $PWD/none/log.csv: No such file" err
}
