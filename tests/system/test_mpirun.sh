# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun --mpi works with the mpirun of each MPI that is installed.

need_openmpi() {
    command -v mpirun.openmpi >/dev/null || skip "Open MPI is not installed"
    export HVD_MPIRUN=mpirun.openmpi
}

# who: shell code that sets rank and size under either MPI.  me: the same, and
# rank 0 reads its stdin to the end, because MPICH's mpiexec can die of SIGPIPE
# when rank 0 ends before mpiexec has told it that stdin has ended.
# shellcheck disable=SC2016
who='rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; size=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}'
# shellcheck disable=SC2016
me="$who"'; [ "$rank" -ne 0 ] || cat >/dev/null'

ranks_are_started() {
    expect_exit 0 "$HVDRUN" --mpi -np 3 --no-tag-output \
        sh -c "$me"'; echo "rank $rank of $size"'
    sort out | diff - <(printf 'rank %d of 3\n' 0 1 2)
    expect_exit 0 "$HVDRUN" --mpi -H localhost:2 --no-tag-output \
        sh -c "$me"'; echo "rank $rank of $size"'
    sort out | diff - <(printf 'rank %d of 2\n' 0 1)
}

test_mpirun_ranks() {
    each_mpirun ranks_are_started
}

exit_code_is_passed() {
    expect_exit 7 "$HVDRUN" --mpi -np 2 sh -c "$me; exit 7"
    expect_exit 0 "$HVDRUN" --mpi -np 2 sh -c "$me"
}

test_mpirun_exit_code() {
    each_mpirun exit_code_is_passed
}

output_is_tagged() {
    expect_exit 0 "$HVDRUN" --mpi -np 2 sh -c "$me"'; echo "I am $rank"'
    case $mpi in
    openmpi) grep -qF '[1,1]<stdout>:I am 1' out ;;
    mpich) grep -qF '[1] I am 1' out ;;
    esac
}

test_mpirun_tags() {
    each_mpirun output_is_tagged
}

# look: shell code of a rank that searches all command lines for the value of
# TOKEN.
# shellcheck disable=SC2016
look='for f in /proc/[0-9]*/cmdline; do
    case $(tr "\0" " " <"$f" 2>/dev/null) in
    *"$TOKEN"*) cp "$f" "seen.$$" ;;
    esac
done'

environment_is_passed() {
    local rank got
    rm -f value.*
    TOKEN=$'s3cret "word" $HOME\n\'next\' line' HVD_RANK=7 RANK=7 \
        expect_exit 0 "$HVDRUN" --mpi -np 2 -x TOKEN -x MORE=given \
        --cycle-time-ms 3 sh -c "$me;$look"'
            printf "%s|%s|%s|%s" "$TOKEN" "$MORE" "$HVD_CYCLE_TIME" \
                "${RANK-none}${HVD_RANK-none}" >value.$rank'
    for rank in 0 1; do
        got=$(cat value.$rank)
        [ "$got" = $'s3cret "word" $HOME\n\'next\' line|given|3|nonenone' ] ||
            fail "rank $rank got: $got"
    done
    [ "$(count_files seen.*)" -eq 0 ] || fail "seen: $(tr '\0' ' ' <seen.*)"
}

test_mpirun_environment() {
    each_mpirun environment_is_passed
}

arguments_are_kept() {
    local words=('a b' '' "it's" '"' '*' '$HOME' '\' '#' '--' 'a;b' $'n\nl')
    mkdir -p 'the dir'
    # shellcheck disable=SC2016
    expect_exit 0 "$HVDRUN" --mpi -np 1 --no-tag-output --wdir 'the dir' \
        sh -c 'cat; printf "<%s>" "$@" >args; pwd >where' sh "${words[@]}"
    cmp 'the dir/args' <(printf '<%s>' "${words[@]}")
    [ "$(cat 'the dir/where')" = "$PWD/the dir" ]
}

test_mpirun_arguments() {
    each_mpirun arguments_are_kept
}

# --dry-run prints one line, without values, that does the same in a shell.
dry_run_prints_the_command() {
    local line
    # shellcheck disable=SC2016
    expect_exit 0 "$HVDRUN" --mpi -np 2 --dry-run -x TOKEN=s3cret \
        --no-tag-output sh -c "$me"'; echo "it'\''s $0" >>ran' one
    one_line out
    absent s3cret out
    [ ! -s err ] && [ ! -e ran ]
    line=$(cat out)
    TOKEN=s3cret bash -c "$line" >/dev/null 2>&1
    [ "$(sort -u ran)" = "it's one" ] && [ "$(wc -l <ran)" -eq 2 ]
    rm ran
}

test_mpirun_dry_run() {
    each_mpirun dry_run_prints_the_command
}

stdin_is_read() {
    echo hello >words
    expect_exit 0 "$HVDRUN" --mpi -np 2 --stdin 0 --no-tag-output \
        sh -c "$who"'; [ $rank -ne 0 ] || cat' <words
    [ "$(cat out)" = hello ]
    expect_exit 0 "$HVDRUN" --mpi -np 1 --no-tag-output cat <words
    [ ! -s out ]
}

test_mpirun_stdin() {
    each_mpirun stdin_is_read
}

# A signal to hvdrun, which has become mpirun, ends the ranks.
signals_end_the_job() {
    local signal
    for signal in TERM INT; do
        rm -f up.*
        start "$mpi-$signal" "$HVDRUN" --mpi -np 2 \
            sh -c "$who"'; : >up.$rank; exec sleep 300'
        wait_for '[ -e up.0 ] && [ -e up.1 ]'
        kill -$signal "$(cat "$mpi-$signal.pid")"
        finish "$mpi-$signal"
        # MPICH's mpiexec exits with 0 now and then.
        [ "$status" -ne 0 ] || [ "$mpi" = mpich ] || fail "exit 0: SIG$signal"
        wait_for "gone $mpi-$signal"
    done
}

test_mpirun_signals() {
    each_mpirun signals_end_the_job
}

time_limit_holds() {
    local began=$SECONDS status=0
    "$HVDRUN" --mpi -np 2 --timeout 500ms sleep 300 >out 2>err || status=$?
    [ "$status" -ne 0 ]
    [ $((SECONDS - began)) -le "$WAIT_S" ]
}

test_mpirun_time_limit() {
    each_mpirun time_limit_holds
}

# A job that a rank of another job starts does not use the rank and size of the
# outer one.
nested_job_runs() {
    expect_exit 0 "$HVDRUN" --mpi -np 1 --no-tag-output "$HVDRUN" --mpi -np 2 \
        --no-tag-output sh -c "$me"'; echo "$rank of $size"'
    grep -q '0 of 2' out
    grep -q '1 of 2' out
    expect_exit 0 "$HVDRUN" --mpi -np 1 --no-tag-output "$HVDRUN" -np 2 \
        --no-tag-output sh -c 'echo "$HVD_RANK of $HVD_SIZE"'
    grep -q '1 of 2' out
}

test_mpirun_nested() {
    each_mpirun nested_job_runs
}

test_mpirun_output_files() {
    need_openmpi
    expect_exit 0 "$HVDRUN" --mpi -np 2 --output-filename files \
        sh -c "$me"'; echo "I am $rank"'
    grep -q 'I am 1' files/rank.1/stdout
    grep -q 'I am 0' out
    expect_exit 0 "$HVDRUN" --mpi -np 1 --prefix-output-with-timestamp echo hi
    grep -Eq '[0-9]:[0-9]{2}.*<stdout>:hi' out
}

test_mpirun_from_a_config_file() {
    need_openmpi
    printf 'controller: mpi\nnum-proc: 2\nmpi-args: -q\n' >job.yaml
    expect_exit 0 "$HVDRUN" --config-file job.yaml sh -c \
        'echo "$OMPI_COMM_WORLD_SIZE"'
    grep -qF '[1,1]<stdout>:2' out
    printf 'controller: mpi\nnum-proc: 2\n' >job.yaml
    expect_exit 0 "$HVDRUN" --config-file job.yaml --gloo \
        sh -c 'echo "size $HVD_SIZE"'
    grep -q 'size 2' out
}

# Wrong use gives one line, and nothing is started.
test_mpirun_refusals() {
    expect_exit 2 env PATH="$PWD" "$HVDRUN" --mpi -np 1 true
    check_refusal 'there is no mpirun in PATH; install Open MPI'
    each_mpirun refused '--grace cannot be used with --mpi' --mpi -np 1 --grace 1
    each_mpirun refused "argument ':'" --mpi -np 1 true :
    each_mpirun refused 'nosuchfile' --mpi --hostfile nosuchfile
    HVD_MPIRUN=nosuch refused 'HVD_MPIRUN: there is no program nosuch' \
        --mpi -np 1
    HVD_MPIRUN=/bin/true refused '/bin/true is not known' --mpi -np 1
    printf '#!/bin/sh\necho "Intel(R) MPI Library, Version 2021.5"\n' >intel
    chmod +x intel
    HVD_MPIRUN=./intel refused 'Intel MPI 2021.5; --mpi works with' --mpi -np 1
}

# An environment variable that is too large for execve gives one line.
test_mpirun_cannot_be_run() {
    need_openmpi
    { printf BIG=; head -c 200000 /dev/zero | tr '\0' x; echo; } >big
    expect_exit 125 "$HVDRUN" --mpi -np 1 --env-file big touch started
    check_refusal 'mpirun.openmpi: Argument list too long'
}
