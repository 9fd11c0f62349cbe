# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Wrong input gives one line and the right exit code, and nothing is started.

test_unknown_options_name_the_nearest() {
    refused '(^|[^-])--hosts' --host localhost:2
    refused '--hostfile' --hostfle x
    refused '--num-proc' --nump-roc 2
    refused '--output-filename' -np 1 --ouptut-filename d
    refused '--timeout' -np 1 --timout 3
    refused '--no-such-thing-at-all' -np 1 --no-such-thing-at-all
    refused '-Q' -np 1 -Q
}

test_rank_counts() {
    local n
    for n in 0 -3 abc 2.5 '' ' ' 1e3 0x10 +2x 70000 99999999999999999999; do
        refused '(-np|--num-proc)' -np "$n"
    done
}

test_missing_argument() {
    expect_exit 2 "$HVDRUN" -np
    check_refusal '(-np|--num-proc)'
    expect_exit 2 "$HVDRUN" -np 1 --hostfile
    check_refusal '--hostfile'
}

# A file for ssh that is missing is an error.  ssh itself would only warn, and
# log in with other keys.
test_files_for_ssh_that_are_missing() {
    local launcher
    for launcher in ssh2 openssh; do
        refused "-i '/nowhere/key': No such file.*private key" \
            --launcher $launcher -np 1 -i /nowhere/key
    done
    refused "--ssh-config '/nowhere/c': No such file" -np 1 --ssh-config /nowhere/c
    refused "--ssh-known-hosts '/nowhere/h': No such file.*touch" \
        -np 1 --ssh-known-hosts /nowhere/h
    expect_exit 2 "$HVDRUN" ps -i /nowhere/key -H localhost
}

test_more_ranks_than_slots() {
    refused '3.*2|2.*3' -np 3 -H localhost:2
    printf 'localhost slots=2\n' >hosts
    refused '5.*2|2.*5' -np 5 --hostfile hosts
}

test_host_lists() {
    refused '-H|--hosts' -np 1 -H ''
    refused '-H|--hosts' -np 1 -H localhost:x
    refused '-H|--hosts' -np 1 -H localhost:-1
    refused '-H|--hosts' -np 1 -H localhost:0
    refused '-H|--hosts' -np 1 -H localhost:99999999999
    refused '-H|--hosts' -np 1 -H 'a b:2'
    refused '-H|--hosts' -np 1 -H 'n[1-'
    refused '-H|--hosts' -np 1 -H ',,'
}

test_hostfile_errors_name_the_line() {
    printf 'localhost slots=2\n\n# x\nlocalhost slots=two\n' >hosts
    refused '(^|[^a-z])hosts:4' -np 1 --hostfile hosts
    printf 'localhost slots=1 colour=blue\n' >hosts
    refused 'hosts:1.*colour' -np 1 --hostfile hosts
    printf 'localhost slots=\n' >hosts
    refused 'hosts:1' -np 1 --hostfile hosts
    printf '\0\377\n' >hosts
    refused 'hosts:1' -np 1 --hostfile hosts
    printf '# nothing\n\n' >hosts
    refused 'hosts' -np 1 --hostfile hosts
    : >hosts
    refused 'hosts' -np 1 --hostfile hosts
    refused 'no-such-file' -np 1 --hostfile no-such-file
    mkdir dir
    refused 'dir' -np 1 --hostfile dir
}

# A host that cannot be reached gives one line that names it.
test_host_that_cannot_be_reached() {
    local got=0
    "$HVDRUN" -np 2 -H localhost:1,elsewhere.invalid:1 touch "$PWD/started" \
        >out 2>err || got=$?
    [ "$got" -ne 0 ]
    check_refusal 'elsewhere.invalid'
}

test_config_files() {
    refused 'no-such-file' -np 1 --config-file no-such-file
    mkdir dir
    refused 'dir' -np 1 --config-file dir
    printf 'params:\n  fusion_treshold_mb: 3\n' >c.yaml
    refused 'c.yaml.*fusion_treshold_mb.*fusion_threshold_mb' \
        -np 1 --config-file c.yaml
    printf 'parms:\n  cache_capacity: 3\n' >c.yaml
    refused 'c.yaml.*parms.*params' -np 1 --config-file c.yaml
    printf 'params: [unclosed\n' >c.yaml
    refused 'c.yaml' -np 1 --config-file c.yaml
    printf 'params:\n  cache_capacity: many\n' >c.yaml
    refused 'c.yaml.*cache_capacity' -np 1 --config-file c.yaml
    printf 'params:\n  cache_capacity: -1\n' >c.yaml
    refused 'c.yaml.*cache_capacity' -np 1 --config-file c.yaml
    printf 'autotune:\n  gaussian_process_noise: 1.5\n' >c.yaml
    refused 'c.yaml.*gaussian_process_noise' -np 1 --config-file c.yaml
    printf 'just text\n' >c.yaml
    refused 'c.yaml' -np 1 --config-file c.yaml
    printf '{"params": {"cache_capacty": 3}}' >c.json
    refused 'c.json.*cache_capacty.*cache_capacity' -np 1 --config-file c.json
    printf '{"params": {"cache_capacity": 3}' >c.json
    refused 'c.json' -np 1 --config-file c.json
}

test_values_out_of_range() {
    refused 'fusion-threshold-mb' -np 1 --fusion-threshold-mb -1
    refused 'cycle-time-ms' -np 1 --cycle-time-ms -0.5
    refused 'cycle-time-ms' -np 1 --cycle-time-ms nan
    refused 'cache-capacity' -np 1 --cache-capacity -1
    refused 'gaussian-process-noise' -np 1 \
        --autotune-gaussian-process-noise 1.5
    refused 'stall-check-warning' -np 1 \
        --stall-check-warning-time-seconds -1
    refused 'nccl-streams' -np 1 --num-nccl-streams -1
    refused 'thread-affinity' -np 1 --thread-affinity -1
    refused 'gloo-timeout' -np 1 --gloo-timeout-seconds -1
    refused 'log-level' -np 1 --log-level LOUD
    refused 'bind-to' -np 1 --bind-to socket
    refused 'gpus-per-rank' -np 1 --gpus-per-rank 0
    refused 'start-timeout' -np 1 --start-timeout soon
    refused 'timeout' -np 1 --timeout -1
    refused 'grace' -np 1 --grace x
    refused 'stdin' -np 2 --stdin 2
    refused 'stdin' -np 2 --stdin -1
    refused 'stdin' -np 2 --stdin some
    refused '-x' -np 1 -x =value
    refused '-x' -np 1 -x ''
}

test_env_file_errors() {
    refused 'no-such-file' -np 1 --env-file no-such-file
    printf 'GOOD=1\nno equals sign here\n' >vars
    refused 'vars:2' -np 1 --env-file vars
}

test_no_command() {
    expect_exit 2 "$HVDRUN" -np 2
    check_refusal 'command|program'
    expect_exit 2 "$HVDRUN" -np 2 --
    check_refusal 'command|program'
    expect_exit 2 "$HVDRUN"
    one_line err
}

test_empty_command() {
    local got=0
    "$HVDRUN" -np 2 '' >out 2>err || got=$?
    case $got in
    2 | 127) ;;
    *) fail "exit $got" ;;
    esac
    check_refusal .
}

test_missing_program_is_127() {
    expect_exit 127 "$HVDRUN" -np 4 no-such-program-anywhere
    check_refusal 'no-such-program-anywhere'
    expect_exit 127 "$HVDRUN" -np 4 ./no/such/path
    check_refusal './no/such/path'
    expect_exit 127 env PATH= "$HVDRUN" -np 1 true
    check_refusal 'true'
}

# As in a shell, a directory in PATH that may not be searched is passed over.
# If the path of the program itself leads through it, the message names it.
test_unsearchable_path() {
    local user=
    if [ "$(id -u)" -eq 0 ]; then
        need_nobody
        user='setpriv --reuid 65534 --clear-groups'
    fi
    mkdir -p locked/below
    cp "$(type -P true)" locked/below/prog
    chmod 000 locked
    expect_exit 127 $user env PATH="$PWD/locked:$PATH" "$HVDRUN" -np 2 \
        --wdir / no-such-program-anywhere
    check_refusal 'not found'
    expect_exit 126 $user "$HVDRUN" -np 2 --wdir / "$PWD/locked/below/prog"
    check_refusal 'locked/below/prog: directory /.* may not be searched'
    chmod 700 locked
}

test_unrunnable_programs_are_126() {
    mkdir dir
    echo 'echo hello' >plain
    expect_exit 126 "$HVDRUN" -np 4 ./plain
    check_refusal 'plain'
    expect_exit 126 "$HVDRUN" -np 4 ./dir
    check_refusal 'dir'
    printf '\177ELFnonsense' >broken
    chmod +x broken
    expect_exit 126 "$HVDRUN" -np 2 ./broken
    check_refusal 'broken'
}

test_missing_interpreter() {
    local got=0
    printf '#!/no/such/interpreter\n' >script
    chmod +x script
    "$HVDRUN" -np 2 ./script >out 2>err || got=$?
    case $got in
    126 | 127) ;;
    *) fail "exit $got" ;;
    esac
    check_refusal 'script'
}

test_deleted_working_directory() {
    local got=0
    mkdir gone
    (cd gone && rmdir ../gone && exec "$HVDRUN" -np 1 true) >out 2>err ||
        got=$?
    [ $got -eq 2 ]
    check_refusal '--wdir'
}

# With too few descriptors hvdrun fails with one line, whatever the limit.
test_few_descriptors() {
    local n got
    sanitized && skip "the sanitizers need more descriptors"
    for n in 5 10 16 18 22 25; do
        got=0
        (ulimit -n $n && exec "$HVDRUN" -np 4 true) >out 2>err || got=$?
        [ $got -eq 125 ] || fail "exit $got with $n descriptors"
        one_line err
        grep -q 'ulimit -n' err
    done
}

test_working_directory() {
    local got=0
    "$HVDRUN" -np 2 --wdir no-such-dir touch "$PWD/started" >out 2>err ||
        got=$?
    [ "$got" -ne 0 ]
    check_refusal 'no-such-dir'
    echo >plain
    got=0
    "$HVDRUN" -np 2 --wdir plain touch "$PWD/started" >out 2>err || got=$?
    [ "$got" -ne 0 ]
    check_refusal 'plain'
    need_root
    mkdir -m 700 secret
    chmod 755 .
    got=0
    need_nobody
    setpriv --reuid 65534 --clear-groups \
        "$HVDRUN" -np 2 --wdir secret touch "$PWD/started" >out 2>err || got=$?
    [ "$got" -eq 2 ] || fail "exit $got"
    check_refusal "--wdir '$PWD/secret': Permission denied"
}

test_output_directory() {
    local got=0
    echo >plain
    "$HVDRUN" -np 2 --output-filename plain/dir touch "$PWD/started" \
        >out 2>err || got=$?
    [ "$got" -eq 2 ] || [ "$got" -eq 125 ] || fail "exit $got"
    check_refusal 'plain'
}

test_unsupported_modes_say_so() {
    refused '--grace' -np 1 --mpi --grace 3
    refused '--mpi-args is for --mpi' -np 1 --mpi-args=-q
    refused '--jsrun' -np 1 --jsrun
}

test_control_bytes_cannot_forge_lines() {
    refused . -np $'1\nhvdrun: all is well\e[2J'
    absent $'\e' err
}

test_agent_is_missing() {
    local got=0
    "$HVDRUN" --agent ./no-agent -np 1 touch "$PWD/started" >out 2>err ||
        got=$?
    [ "$got" -ne 0 ]
    check_refusal 'no-agent'
}

test_help_version_check_build() {
    expect_exit 0 "$HVDRUN" --help
    [ ! -s err ]
    grep -q -- '--num-proc' out
    [ "$(wc -L <out)" -le 80 ]
    [ "$(wc -l <out)" -le 80 ]
    expect_exit 0 "$HVDRUN" -h
    expect_exit 0 "$HVDRUN" --version
    one_line out
    [ ! -s err ]
    grep -Eq '[0-9]+\.[0-9]+\.[0-9]+' out
    expect_exit 0 "$HVDRUN" -v
    expect_exit 0 "$HVDRUN" --check-build
    grep -q '\[X\] ssh, by libssh2: ' out
    grep -q '\[X\] native, TCP' out
    [ ! -s err ]
    expect_exit 0 "$HVDRUN" --check-build --json
    grep -q '"planes"' out
    expect_exit 0 "$HVDRUN" -cb
}

test_dry_run_starts_nothing() {
    expect_exit 0 "$HVDRUN" --dry-run -np 3 \
        -H localhost:1,elsewhere.invalid:1,127.0.0.1:1 touch "$PWD/started"
    [ ! -e started ]
    [ ! -s err ]
    grep -Eq '^ *0 +localhost' out
    grep -Eq '^ *1 +localhost' out # 127.0.0.1 is the same host
    grep -Eq '^ *2 +elsewhere.invalid' out
    [ "$(grep -Ec '^ *[0-9]+ ' out)" -eq 3 ]
}

# --help exits with an error if its text cannot be written.
test_help_into_a_full_device() {
    local got=0
    [ -c /dev/full ] || skip "no /dev/full"
    "$HVDRUN" --help >/dev/full 2>err || got=$?
    [ "$got" -ne 0 ]
}
