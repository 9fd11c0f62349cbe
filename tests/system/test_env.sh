# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What a rank finds when it starts: its place among the ranks, its environment
# and its arguments.

environ_of() {
    "$HVDRUN" "$@" "$PROG/actor" environ env
}

# place FILE RANK SIZE LOCAL LOCAL_SIZE CROSS CROSS_SIZE: fails the test unless
# the variables in FILE, which `actor environ` wrote, give a rank this place.
place() {
    local names=(RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE)
    local f=$1 i prefix
    shift
    for i in 0 1 2 3 4 5; do
        for prefix in HVD HOROVOD; do
            same "$f" "${prefix}_${names[i]}" "${*:i+1:1}"
        done
    done
    same "$f" RANK "$1"
    same "$f" WORLD_SIZE "$2"
    same "$f" LOCAL_RANK "$3"
    same "$f" LOCAL_WORLD_SIZE "$4"
}

test_np_alone_is_this_machine() {
    local r
    environ_of -np 4
    for r in 0 1 2 3; do
        place env.$r $r 4 $r 4 0 1
        same env.$r NODE_RANK 0
        same env.$r GROUP_RANK 0
        same env.$r HVD_JOB_ID "$(var env.0 HVD_JOB_ID)"
        same env.$r MASTER_PORT "$(var env.0 MASTER_PORT)"
        same env.$r MASTER_ADDR "$(var env.0 MASTER_ADDR)"
        same env.$r PYTHONUNBUFFERED 1
        [ -n "$(var env.$r HVD_HOSTNAME)" ]
        [ -n "$(var env.$r HVD_RENDEZVOUS)" ]
    done
    [ -n "$(var env.0 HVD_JOB_ID)" ]
    [ "$(count_files env.*)" -eq 4 ]
}

test_two_names_of_this_machine_are_one_host() {
    environ_of -np 4 -H localhost:2,127.0.0.1:2
    place env.0 0 4 0 4 0 1
    place env.1 1 4 1 4 0 1
    place env.2 2 4 2 4 0 1
    place env.3 3 4 3 4 0 1
    same env.3 NODE_RANK 0
    same env.0 HVD_HOSTNAME localhost
    same env.3 HVD_HOSTNAME localhost
    expect_exit 0 "$HVDRUN" --verbose -H localhost:2,127.0.0.1:2 true
    grep -q 'host 127.0.0.1: counted as host localhost, which it is' err
    printf 'localhost slots=1 max_slots=1\n127.0.0.1\n' >hosts
    refused 'localhost and 127.0.0.1 are one host: its slots add up to 2' \
        --hostfile hosts
}

# Each host name that --rsh gets counts as a host.
test_places_on_two_hosts() {
    environ_of -np 4 -H a:2,b:2 --rsh 'env PLAYED={host}'
    place env.0 0 4 0 2 0 2
    place env.1 1 4 1 2 0 2
    place env.2 2 4 0 2 1 2
    place env.3 3 4 1 2 1 2
    same env.3 NODE_RANK 1
    same env.0 HVD_HOSTNAME a
    same env.3 HVD_HOSTNAME b
}

test_cross_size_of_unequal_hosts() {
    environ_of -np 3 -H a:1,b:2 --rsh 'env PLAYED={host}'
    place env.0 0 3 0 1 0 2
    place env.1 1 3 0 2 1 2
    place env.2 2 3 1 2 0 1
}

test_np_bounds_the_slots() {
    environ_of -np 2 -H localhost:4
    place env.0 0 2 0 2 0 1
    place env.1 1 2 1 2 0 1
    [ "$(count_files env.*)" -eq 2 ]
}

test_hosts_alone_fill_their_slots() {
    environ_of -H localhost:3
    place env.2 2 3 2 3 0 1
    [ "$(count_files env.*)" -eq 3 ]
}

test_hostfile_dialects() {
    printf '%s\n' '# a comment' '' '   a slots=2 max_slots=4  # two' \
        'b' >hosts
    environ_of -np 3 --hostfile hosts --rsh 'env PLAYED={host}'
    place env.0 0 3 0 2 0 2
    place env.2 2 3 0 1 1 2
}

test_options_of_horovodrun_spelt_its_way() {
    printf 'localhost slots=2\n' >hosts
    environ_of --num-proc 2 -hostfile hosts
    place env.1 1 2 1 2 0 1
    rm env.*
    environ_of --num-proc=2 --hosts=localhost:2
    place env.1 1 2 1 2 0 1
}

test_own_values_win_over_inherited() {
    export HOROVOD_RANK=5 HVD_RANK=6 RANK=7 OMPI_COMM_WORLD_RANK=8 \
        HOROVOD_SIZE=50 WORLD_SIZE=60 HVD_LOCAL_RANK=9 HVD_JOB_ID=old \
        HVD_RENDEZVOUS=unix:@old MASTER_PORT=1
    environ_of -np 2
    place env.0 0 2 0 2 0 1
    place env.1 1 2 1 2 0 1
    [ "$(var env.0 HVD_JOB_ID)" != old ]
    [ "$(var env.0 HVD_RENDEZVOUS)" != unix:@old ]
}

# Ranks get every variable unchanged, whatever bytes it holds.  The variables
# that hvdrun itself sets are left out of the comparison.
test_environment_arrives_intact() {
    local big i
    big=$(head -c 50000 /dev/zero | tr '\0' x)
    env "a.dotted-name=x  y" "QUOTES='\"\`\$HOME\\" "EMPTY=" "EQUALS=a=b=" \
        "NEWLINES=one"$'\n'"two"$'\n' "BYTES="$'\xff\x01\x7f' "UTF=grüße" \
        "BIG1=$big" "BIG2=$big" "BIG3=$big" "BIG4=$big" \
        "SPACES=  x  " "GLOB=*" "lower=1" "_UNDER=2" \
        sh -c '"$PROG/actor" environ before
               exec "$HVDRUN" -np 2 "$PROG/actor" environ after'
    for i in before.none after.0 after.1; do
        grep -avzE '^(HVD_|HOROVOD_|RANK=|WORLD_SIZE=|LOCAL_|NODE_RANK|GROUP_|ROLE_|OMP_NUM_THREADS=|MASTER_|PYTHONUNBUFFERED=|_=|OLDPWD=)' \
            "$i" | sort -z >"$i.sorted"
    done
    [ "$(stat -c %s before.none.sorted)" -gt 200000 ]
    cmp before.none.sorted after.0.sorted
    cmp before.none.sorted after.1.sorted
}

test_arguments_arrive_intact() {
    local args=('a  b' '$HOME' "it's" '*' '' $'new\nline' $'\xff\x01' -np
        --help '--' ';' '&& false' '"' '\' 'grüße')
    "$HVDRUN" -np 2 "$PROG/actor" argv argv "${args[@]}"
    printf '%s\0' "${args[@]}" >want
    cmp want argv.0
    cmp want argv.1
}

test_long_argument_list() {
    local word
    word=$(head -c 100000 /dev/zero | tr '\0' '\377')
    set -- "$word" "$word" "$word" "$word" "$word" "$word" "$word" "$word"
    "$HVDRUN" -np 2 "$PROG/actor" argv argv "$@"
    printf '%s\0' "$@" | cmp - argv.1
}

test_directory_that_is_gone() {
    mkdir d
    cd d
    rmdir ../d
    "$HVDRUN" -np 1 --wdir / true
    if "$HVDRUN" -np 1 touch ../started 2>../err; then
        fail "no error"
    fi
    one_line ../err
    grep -q 'directory' ../err
    [ ! -e ../started ]
}

test_two_dashes_end_the_options() {
    "$HVDRUN" -np 1 -- "$PROG/actor" argv argv -x
    printf '%s\0' -x | cmp - argv.0
}

test_master_port_can_be_bound() {
    "$HVDRUN" -np 2 sh -c '[ $RANK = 1 ] ||
        exec "$PROG/actor" bind "$MASTER_ADDR" "$MASTER_PORT"'
}

test_x_sets_and_passes_on() {
    FROM_HERE='a b' SAME=old "$HVDRUN" -np 1 -x FROM_HERE -x SAME=new \
        -x 'EMPTY=' -x 'EQ=a=b c' "$PROG/actor" environ env
    same env.0 FROM_HERE 'a b'
    same env.0 SAME new
    same env.0 EQ 'a=b c'
    grep -qaz '^EMPTY=$' env.0
}

test_env_file() {
    printf '%s\n' '# settings' '' 'ONE=1' 'TWO=a b=c' 'OVER=file' >vars
    "$HVDRUN" -np 1 --env-file vars -x OVER=flag "$PROG/actor" environ env
    same env.0 ONE 1
    same env.0 TWO 'a b=c'
    same env.0 OVER flag
}

test_start_timeout_reaches_the_ranks() {
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output --start-timeout 90 env
    grep -qx 'HVD_START_TIMEOUT=90' out
    grep -qx 'HOROVOD_START_TIMEOUT=90' out
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output --no-env env
    absent START_TIMEOUT out
}

# hvdrun warns if two ranks are bound to one core.
test_more_ranks_than_cores() {
    local cpu
    cpu=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' \
        /proc/self/status)
    expect_exit 0 taskset -c "$cpu" "$HVDRUN" -np 2 --bind-to core true
    one_line err
    grep -q '2 ranks on 1 core: they share it' err
    expect_exit 0 taskset -c "$cpu" "$HVDRUN" -np 2 --bind-to core --dry-run true
    grep -q '^warning: .*2 ranks on 1 core: they share it' out
    expect_exit 0 taskset -c "$cpu" "$HVDRUN" -np 2 --bind-to numa true
    [ ! -s err ]
}

test_wdir() {
    mkdir 'a dir'
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output --wdir 'a dir' pwd
    [ "$(sort -u out)" = "$PWD/a dir" ]
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output pwd
    [ "$(cat out)" = "$PWD" ]
    cd 'a dir'
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output --wdir .. pwd
    [ "$(cat out)" = "${PWD%/*}" ]
}

test_relative_programs() {
    mkdir d
    printf '#!/bin/sh\necho here\n' >d/prog
    chmod +x d/prog
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output d/prog
    [ "$(cat out)" = here ]
    PATH=$PWD/d:$PATH expect_exit 0 "$HVDRUN" -np 1 --no-tag-output prog
    [ "$(cat out)" = here ]
}

# A rank starts with default signals and three descriptors, and with the
# limits, umask and priority of hvdrun's caller.
test_clean_start() {
    sanitized && skip "sanitizers handle signals in every program"
    umask 027
    local show='umask; ulimit -a; nice; cat /proc/self/oom_score_adj'
    bash -c "$show" >before
    "$PROG/actor" exec "$HVDRUN" -np 2 "$PROG/actor" state state
    echo 'fds 0 1 2' >want
    diff want state.0
    diff want state.1
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output bash -c "$show"
    diff before out
}

test_nested() {
    expect_exit 0 "$HVDRUN" -np 2 --no-tag-output sh -c '
        "$HVDRUN" -np 3 --no-tag-output sh -c \
            "echo outer $HVD_RANK inner \$HVD_RANK of \$HVD_SIZE"'
    sort out >sorted
    for o in 0 1; do
        for i in 0 1 2; do
            echo "outer $o inner $i of 3"
        done
    done | diff - sorted
}

test_nested_failure_passes_up() {
    expect_exit 9 "$HVDRUN" -np 2 --grace 2 sh -c '
        exec "$HVDRUN" -np 2 sh -c "[ \$HVD_RANK = 0 ] && exit 9; exec sleep 1000"'
}

# knob FLAGS NAME VALUE: fails the test unless FLAGS set variable NAME to
# VALUE.
knob() {
    local value
    rm -f env.0
    # shellcheck disable=SC2086
    environ_of -np 1 $1
    value=$(var env.0 "HOROVOD_$2")
    [ "$value" = "$3" ] || fail "$1: HOROVOD_$2 is '$value', not '$3'"
    same env.0 "HVD_$2" "$value"
}

test_every_tunable_flag() {
    knob '--fusion-threshold-mb 10' FUSION_THRESHOLD 10485760
    knob '--fusion-threshold-mb 0' FUSION_THRESHOLD 0
    knob '--cache-capacity 0' CACHE_CAPACITY 0
    knob '--hierarchical-allreduce' HIERARCHICAL_ALLREDUCE 1
    knob '--no-hierarchical-allreduce' HIERARCHICAL_ALLREDUCE 0
    knob '--hierarchical-allgather' HIERARCHICAL_ALLGATHER 1
    knob '--no-hierarchical-allgather' HIERARCHICAL_ALLGATHER 0
    knob '--torus-allreduce' TORUS_ALLREDUCE 1
    knob '--no-torus-allreduce' TORUS_ALLREDUCE 0
    knob '--autotune' AUTOTUNE 1
    HOROVOD_AUTOTUNE=1 knob '--no-autotune' AUTOTUNE 0
    knob '--autotune --autotune-log-file=/x/y' AUTOTUNE_LOG /x/y
    knob '--autotune --autotune-warmup-samples 4' AUTOTUNE_WARMUP_SAMPLES 4
    knob '--autotune --autotune-steps-per-sample 5' \
        AUTOTUNE_STEPS_PER_SAMPLE 5
    knob '--autotune --autotune-bayes-opt-max-samples 6' \
        AUTOTUNE_BAYES_OPT_MAX_SAMPLES 6
    knob '--autotune --autotune-gaussian-process-noise 0.25' \
        AUTOTUNE_GAUSSIAN_PROCESS_NOISE 0.25
    # HVD_TIMELINE names a file for each rank, which hvdrun merges.
    environ_of -np 1 --timeline-filename t.json
    [ "$(var env.0 HOROVOD_TIMELINE)" = t.json ]
    [[ $(var env.0 HVD_TIMELINE) == /*/trace.json ]]
    knob '--timeline-filename t --timeline-mark-cycles' TIMELINE_MARK_CYCLES 1
    knob '--timeline-filename t --no-timeline-mark-cycles' \
        TIMELINE_MARK_CYCLES 0
    knob '--no-stall-check' STALL_CHECK_DISABLE 1
    knob '--stall-check' STALL_CHECK_DISABLE 0
    knob '--stall-check-warning-time-seconds 7' STALL_CHECK_TIME_SECONDS 7
    knob '--stall-check-shutdown-time-seconds 8' STALL_SHUTDOWN_TIME_SECONDS 8
    knob '--mpi-threads-disable' MPI_THREADS_DISABLE 1
    knob '--no-mpi-threads-disable' MPI_THREADS_DISABLE 0
    knob '--num-nccl-streams 3' NUM_NCCL_STREAMS 3
    knob '--thread-affinity 1' THREAD_AFFINITY 1
    knob '--gloo-timeout-seconds 99' GLOO_TIMEOUT_SECONDS 99
    knob '--log-level DEBUG' LOG_LEVEL DEBUG
    knob '--log-without-timestamp' LOG_HIDE_TIME 1
    knob '--log-with-timestamp' LOG_HIDE_TIME 0
}

test_cycle_time_and_tcp() {
    environ_of -np 1 --cycle-time-ms 20 --tcp
    case $(var env.0 HOROVOD_CYCLE_TIME) in
    20 | 20.0) ;;
    *) fail "cycle time $(var env.0 HOROVOD_CYCLE_TIME)" ;;
    esac
    same env.0 NCCL_IB_DISABLE 1
}

test_inherited_knob_stays() {
    HOROVOD_GLOO_TIMEOUT_SECONDS=1800 environ_of -np 1
    same env.0 HOROVOD_GLOO_TIMEOUT_SECONDS 1800
    HOROVOD_GLOO_TIMEOUT_SECONDS=1800 environ_of -np 1 \
        --gloo-timeout-seconds 5
    same env.0 HOROVOD_GLOO_TIMEOUT_SECONDS 5
    HVD_CACHE_CAPACITY=9 environ_of -np 1 --cache-capacity 4
    same env.0 HVD_CACHE_CAPACITY 4
}

test_config_file_yaml() {
    cat >job.yaml <<'YAML'
params:
  fusion_threshold_mb: 32
  cache_capacity: 2048
  hierarchical_allreduce: true
autotune:
  enabled: true
  log_file: tune.csv
  gaussian_process_noise: 0.5
timeline:
  filename: t.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 120
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 1
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp: false
YAML
    environ_of -np 2 --config-file job.yaml
    same env.1 HOROVOD_THREAD_AFFINITY 1
    same env.1 HOROVOD_GLOO_TIMEOUT_SECONDS 60
    same env.1 HOROVOD_MPI_THREADS_DISABLE 1
    same env.1 HOROVOD_LOG_HIDE_TIME 1
    same env.0 HOROVOD_FUSION_THRESHOLD 33554432
    same env.0 HOROVOD_CACHE_CAPACITY 2048
    same env.0 HOROVOD_HIERARCHICAL_ALLREDUCE 1
    same env.0 HOROVOD_AUTOTUNE 1
    same env.0 HOROVOD_AUTOTUNE_LOG tune.csv
    same env.0 HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE 0.5
    same env.0 HOROVOD_TIMELINE t.json
    same env.0 HOROVOD_TIMELINE_MARK_CYCLES 1
    same env.0 HOROVOD_STALL_CHECK_DISABLE 1
    same env.0 HOROVOD_STALL_CHECK_TIME_SECONDS 120
    same env.0 HOROVOD_NUM_NCCL_STREAMS 2
    same env.0 HOROVOD_LOG_LEVEL INFO
}

# The sample configuration file of horovodrun's documentation, which hvdrun(1)
# shows too, works with a program that uses libhvd.  Its thread_affinity asks
# for cores 1 and 2, which a machine may lack.
test_config_file_of_horovodruns_documentation() {
    awk '/^controller: gloo/ {on = 1} /^\.Ed/ {on = 0} on' \
        "$ROOT/man/hvdrun.1" >job.yaml
    grep -q '^  thread_affinity: 1$' job.yaml
    grep -q '^  with_timestamp: false$' job.yaml
    expect_exit 0 "$HVDRUN" -np 2 --config-file job.yaml "$PROG/coll" sum 10 20
    [ -s timeline.json ]
    [ -s autotune.csv ]
}

test_thread_affinity() {
    local cpu
    cpu=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' \
        /proc/self/status)
    expect_exit 0 "$HVDRUN" -np 1 --thread-affinity "$cpu" "$PROG/coll" cores
    grep -qx "\[0\]<stdout>:rank 0: hvd-engine on $cpu" out
    [ ! -s err ]
    # A single number is the core of local rank 0; local rank 1 gets the next
    # core.
    expect_exit 0 "$HVDRUN" -np 2 --thread-affinity 4000 "$PROG/coll" cores
    grep -q '"4000" gives core 4000 to local rank 0, which has no such' err
    grep -q '"4000" gives core 4001 to local rank 1, which has no such' err
    [ "$(wc -l <err)" -eq 2 ]
    # A list gives cores only to as many ranks as it has numbers.
    expect_exit 0 "$HVDRUN" -np 3 --thread-affinity "$cpu,$cpu" \
        "$PROG/coll" cores
    [ "$(grep -c "hvd-engine on $cpu\$" out)" -ge 2 ]
    one_line err
    grep -q "\"$cpu,$cpu\" has no core for local rank 2" err
    HVD_THREAD_AFFINITY=one expect_exit 1 "$HVDRUN" -np 1 "$PROG/coll" cores
    grep -q "HVD_THREAD_AFFINITY: 'one' is not a whole number" err
}

# --gloo-timeout-seconds limits how long hvd_init waits for other ranks.
test_gloo_timeout() {
    local late='[ $HVD_RANK = 1 ] && exec sleep 1000; exec "$PROG/coll" sum 1 1'
    expect_exit 124 "$HVDRUN" -np 2 --grace 1 --gloo-timeout-seconds 1 \
        sh -c "$late"
    grep -q 'rank 1 (pid [0-9]*) on host .* has not called hvd_init' err
    HOROVOD_GLOO_TIMEOUT_SECONDS=0 expect_exit 1 "$HVDRUN" -np 1 \
        "$PROG/coll" sum 1 1
    grep -q "HOROVOD_GLOO_TIMEOUT_SECONDS: 0 is out of range" err
    # --start-timeout takes precedence.
    expect_exit 0 "$HVDRUN" -np 2 --start-timeout 60 --gloo-timeout-seconds 1 \
        sh -c '[ $HVD_RANK = 0 ] || sleep 1.2; exec "$PROG/coll" sum 1 1'
}

test_time_before_the_librarys_lines() {
    local time='[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]{3} '
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output --log-with-timestamp \
        -x HVD_CYCLE_TIME=3 -x HVD_LOG_LEVEL=info "$PROG/coll" sum 1 1
    grep -qE "^${time}libhvd: info: HVD_CYCLE_TIME changes nothing" err
    expect_exit 0 "$HVDRUN" -np 1 --no-tag-output --log-without-timestamp \
        -x HVD_CYCLE_TIME=3 -x HVD_LOG_LEVEL=info "$PROG/coll" sum 1 1
    grep -q '^libhvd: info: HVD_CYCLE_TIME changes nothing' err
}

test_config_file_json() {
    echo '{"params": {"fusion_threshold_mb": 8}, "timeline": {"filename": "x"}}' \
        >job.json
    environ_of -np 1 --config-file job.json
    same env.0 HOROVOD_FUSION_THRESHOLD 8388608
    same env.0 HOROVOD_TIMELINE x
}

test_flags_win_over_the_config_file() {
    printf 'params:\n  fusion_threshold_mb: 32\n' >job.yaml
    environ_of -np 1 --config-file job.yaml --fusion-threshold-mb 10
    same env.0 HOROVOD_FUSION_THRESHOLD 10485760
    environ_of -np 1 --fusion-threshold-mb 10 --config-file job.yaml
    same env.0 HOROVOD_FUSION_THRESHOLD 10485760
}

test_bind_to_core() {
    local n list
    n=$(nproc)
    [ "$n" -ge 2 ] || skip "needs two processors"
    "$HVDRUN" -np 2 --bind-to core sh -c \
        'grep Cpus_allowed_list: /proc/self/status >cpus.$HVD_RANK'
    "$HVDRUN" -np 2 sh -c \
        'grep Cpus_allowed_list: /proc/self/status >free.$HVD_RANK'
    list=$(grep Cpus_allowed_list: /proc/self/status)
    [ "$(cat free.0)" = "$list" ]
    [ "$(cat free.1)" = "$list" ]
    [ "$(cat cpus.0)" != "$list" ]
    "$HVDRUN" -np 2 --bind-to numa true
}

test_domains() {
    expect_exit 0 "$HVDRUN" -np 9 -x HVD_DOMAINS=0,0,0,0,1 "$PROG/coll" sum 2 5
    expect_exit 125 "$HVDRUN" -np 2 -x HVD_DOMAINS=near true
    one_line err
    grep -q 'HVD_DOMAINS is near; a number for each rank' err
}

# For each knob without effect, rank 0 alone prints a line, at log level info
# only.
test_knobs_without_effect() {
    export HOROVOD_MPI_THREADS_DISABLE=1 HVD_CYCLE_TIME=3
    expect_exit 0 "$HVDRUN" -np 2 -x HVD_LOG_LEVEL=info "$PROG/coll" sum 1 1
    [ "$(grep -c 'HVD_MPI_THREADS_DISABLE changes nothing' err)" -eq 1 ]
    [ "$(grep -c 'HVD_CYCLE_TIME changes nothing' err)" -eq 1 ]
    expect_exit 0 "$HVDRUN" -np 2 "$PROG/coll" sum 1 1
    absent 'changes nothing' err
    expect_exit 0 "$HVDRUN" -np 1 --verbose --mpi-threads-disable true
    grep -q -e '--mpi-threads-disable: no effect: MPI is called by one' err
}
