# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The examples learn from their real data.

# Prints the last percentage in file $1 on a line about accuracy.
accuracy() {
    grep -i accuracy "$1" | tail -n 1 | grep -oE '[0-9]+\.[0-9]+ ?%' |
        tail -n 1 | tr -d ' %'
}

test_train_digits() {
    local np a first=
    sanitized && skip "too slow with sanitizers"
    for np in 1 2 4; do
        expect_exit 0 "$HVDRUN" -np $np --no-tag-output \
            "$EXAMPLES/train_digits"
        a=$(accuracy out)
        [ -n "$a" ] || fail "np $np: no accuracy: $(tail -n 3 out)"
        awk "BEGIN { exit !($a >= 95) }" || fail "np $np: accuracy $a %"
        [ -n "$first" ] || first=$a
        awk "BEGIN { d = $a - $first; exit !(d <= 1 && d >= -1) }" ||
            fail "np $np: accuracy $a %, np 1: $first %"
    done
}

test_train_digits_alone_and_again() {
    sanitized && skip "too slow with sanitizers"
    "$EXAMPLES/train_digits" >alone
    awk "BEGIN { exit !($(accuracy alone) >= 95) }"
}

# Rank 0 dies twice, and the others learn as much.
test_train_digits_elastic() {
    sanitized && skip "too slow with sanitizers"
    expect_exit 0 "$HVDRUN" -np 4 --min-np 2 --no-tag-output \
        "$EXAMPLES/train_digits_elastic" --die 2
    grep -qx '2 ranks at the end' out
    grep -q 'finished with 2 of 4 ranks' err
    awk "BEGIN { exit !($(accuracy out) >= 95) }" ||
        fail "accuracy $(accuracy out) %"
}

# Prints the losses, accuracies and AUCs in file $1, which must not differ
# between runs, unlike times and speeds.
results() {
    grep -oE '(loss|accuracy|AUC)[^0-9]*[0-9.]+' "$1"
}

test_same_results_twice() {
    sanitized && skip "too slow with sanitizers"
    local example
    for example in train_digits anomaly_autoencoder; do
        "$HVDRUN" -np 2 --no-tag-output "$EXAMPLES/$example" >one
        "$HVDRUN" -np 2 --no-tag-output "$EXAMPLES/$example" >two
        [ "$(results one | wc -l)" -gt 0 ]
        diff <(results one) <(results two)
    done
}

test_only_rank_0_prints() {
    sanitized && skip "too slow with sanitizers"
    expect_exit 0 "$HVDRUN" -np 2 "$EXAMPLES/train_digits"
    absent '^\[1\]' out
    [ ! -s err ]
}

test_anomaly_autoencoder() {
    local np auc
    sanitized && skip "too slow with sanitizers"
    for np in 1 2 4; do
        expect_exit 0 "$HVDRUN" -np $np --no-tag-output \
            "$EXAMPLES/anomaly_autoencoder"
        auc=$(grep -i auc out | tail -n 1 | grep -oE '0\.[0-9]+|1\.0+' |
            tail -n 1)
        [ -n "$auc" ] || fail "np $np: no AUC: $(tail -n 3 out)"
        awk "BEGIN { exit !($auc >= 0.90) }" || fail "np $np: AUC $auc"
    done
}

# The examples find their data from any current directory.
test_examples_find_their_data() {
    sanitized && skip "too slow with sanitizers"
    (cd / && "$HVDRUN" -np 2 "$EXAMPLES/train_digits") >out
    (cd "$ROOT" && "$HVDRUN" -np 2 "$EXAMPLES/anomaly_autoencoder") >out
}

test_examples_say_what_is_wrong() {
    local got=0 example
    for example in train_digits anomaly_autoencoder; do
        got=0
        "$EXAMPLES/$example" --no-such-option >out 2>err || got=$?
        [ $got -eq 2 ] || fail "$example: exit $got"
        one_line err
        got=0
        "$EXAMPLES/$example" no-such-data.csv >out 2>err || got=$?
        [ $got -ne 0 ]
    done
}
