# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Elastic jobs in which many ranks are killed at random instants.
#
# Each job is of a random shape (chosen by its number) and must end well: each
# rank checks each sum, and judge_job checks that each step was done once.
#
# HVD_TEST_ELASTIC_JOBS=256 (with HVD_TEST_LIMIT above the time) makes storms of
# that many jobs; HVD_TEST_ELASTIC_FIRST is the number of the first.  The times
# from a kill until all that are left have a right sum are appended to the file
# HVD_TEST_ELASTIC_TIMES, if that is set, with a summary at the end.

# Prints the processes that worked in the last generation so far: HOST:PID.
members() {
    awk '$1 == "right" {
            if ($2 > last) { last = $2; n = 0 }
            if ($2 == last) who[n++] = $3
        }
        END { for (i = 0; i < n; i++) print who[i] }' job.out
}

# Kills the process HOST:PID $1 and notes the time in kills.txt.
kill_rank() {
    local t=$EPOCHREALTIME
    kill -KILL "${1#*:}" 2>/dev/null || return 0
    echo "$1 ${t/./}" >>kills.txt
}

# The same on a host of the cluster, by the clock that all hosts share.
kill_rank_on() {
    # shellcheck disable=SC2016 # the shell on the host expands it
    on "${1%:*}" bash -c '
        t=$EPOCHREALTIME
        kill -KILL "${0#*:}" 2>/dev/null && echo "$0 ${t/./}"' "$1" \
        >>kills.txt || :
}

# Chooses job $1: sets np, options, count, flags and kind.  $2: `one`
# or `several` hosts.
choose_job() {
    RANDOM=$1
    np=$((3 + RANDOM % 4))
    options=()
    flags="pr"
    steps=400
    case $((RANDOM % 3)) in
    0) count=$((1 + RANDOM % 16)) ;;
    1) count=$((1000 + RANDOM % 4000)) ;;
    2) count=$((50000 + RANDOM)) ;;
    esac
    case $((RANDOM % 4)) in
    0) flags+=a ;;
    1) flags+=s ;;
    esac
    [ $((RANDOM % 2)) -eq 0 ] || flags+=g
    kind=hosts
    if [ "$2" = one ]; then
        kind=shm
        [ $(($1 % 2)) -eq 0 ] || kind=tcp options=(-x HVD_FORCE_TCP=1)
    fi
    [ $(($1 / 2 % 2)) -eq 0 ] || options+=(--restart-failed 2) steps=1500
}

# Kills np - 1 processes of the job, one or two at once, by the command $1.
kill_some() {
    local left=$((np - 1)) victims i killers
    while [ $left -gt 0 ] && alive "$(cat job.pid)"; do
        sleep 0.0$((RANDOM % 10))$((RANDOM % 10))
        mapfile -t victims < <(members)
        [ ${#victims[@]} -gt 0 ] || fail "nobody works: $(cat job.out job.err)"
        killers=()
        for ((i = RANDOM % 3 == 0 ? 2 : 1; i > 0 && left > 0; i--)); do
            "$1" "${victims[RANDOM % ${#victims[@]}]}" &
            killers+=($!)
            left=$((left - 1))
        done
        wait "${killers[@]}"
    done
}

# Fails unless all that are left have done each step once: the weight that they
# tell at the end must follow from the step and the size that each generation
# began with.
judge_job() {
    [ "$status" -eq 0 ] || fail "job $1: exit $status: $(cat job.out job.err)"
    awk -v steps="$steps" '
        $1 == "right" {
            if ($2 in step && (step[$2] != $6 || size[$2] != $5)) {
                print "generation " $2 " began twice"; bad = 1
            }
            step[$2] = $6; size[$2] = $5
            if ($2 > last) last = $2
        }
        $1 == "weight" { weight[$2] }
        $1 == "done" { done++ }
        END {
            for (g = 1; g <= last; g++) {
                if (!(g in step)) continue
                if (!first++ && step[g] != 0) {
                    print "the first step is " step[g]; bad = 1
                }
                while (at < step[g]) want += ++at * n * (n + 1) / 2
                n = size[g]
            }
            while (at < steps) want += ++at * n * (n + 1) / 2
            for (w in weight) if (w != want) {
                print "weight " w " instead of " want; bad = 1
            }
            if (!done) { print "no rank has done all steps"; bad = 1 }
            exit bad
        }' job.out || fail "job $1: $(cat job.out job.err)"
}

# Appends to times.txt, for each kill of a member of a generation, the
# milliseconds until all members of the next one that have not died had a right
# sum.
take_times() {
    awk -v kind="$1" '
        NR == FNR { if (!($1 in at)) at[$1] = $2; next }
        $1 == "right" {
            in_[$2, $3]
            if ($4 > max[$2]) max[$2] = $4
            if ($2 > last) last = $2
        }
        END {
            for (who in at)
                for (g = 1; g <= last; g++)
                    if (g in max && !((g, who) in in_) &&
                        max[g] > at[who]) {
                        printf "%s %.3f\n", kind, (max[g] - at[who]) / 1000
                        break
                    }
        }' kills.txt job.out >>times.txt
}

# Prints how many times there are of each kind, and their distribution.
sum_up() {
    sort -k1,1 -k2,2n times.txt | awk '
        function at(q,  i) {
            i = int(q * n + 0.999999)
            return ms[i < 1 ? 1 : i]
        }
        function tell() {
            if (n) printf "# %s: %d kills, median %.2f ms, p90 %.2f, " \
                "p99 %.2f, max %.2f\n", kind, n, at(0.5), at(0.9), at(0.99),
                ms[n]
            n = 0
        }
        $1 != kind { tell(); kind = $1 }
        { ms[++n] = $2 }
        END { tell() }'
}

# storm JOBS HOSTS KILL COMMAND...: runs that many jobs.  HOSTS: as $2 of
# choose_job; KILL: the command that kills a process; COMMAND...: what comes
# before the options of hvdrun.
storm() {
    local first=${HVD_TEST_ELASTIC_FIRST:-0} i
    : >times.txt
    for ((i = first; i < first + $1; i++)); do
        choose_job "$i" "$2"
        : >kills.txt
        "${@:4}" -np "$np" --min-np 1 --no-tag-output "${options[@]}" \
            "$PROG/elastic_steps" $steps "$count" $flags
        wait_for "[ \$(grep -c ^right job.out) -ge $np ] ||
            ! alive $(cat job.pid)"
        kill_some "$3"
        finish job
        judge_job "$i"
        take_times "$kind"
        wait_for 'gone job'
    done
    # A storm in which nothing happens would check nothing.
    [ "$(wc -l <times.txt)" -ge "$1" ] || fail "only $(wc -l <times.txt) kills"
    [ -z "${HVD_TEST_ELASTIC_TIMES:-}" ] ||
        { cat times.txt && sum_up; } >>"$HVD_TEST_ELASTIC_TIMES"
}

test_storm_on_one_host() {
    storm "${HVD_TEST_ELASTIC_JOBS:-4}" one kill_rank start job "$HVDRUN"
}

test_storm_on_hosts() {
    cluster_up 3
    storm "${HVD_TEST_ELASTIC_JOBS:-3}" several kill_rank_on \
        start_on login job "$HVDRUN" -H n1:2,n2:2,n3:2
    cluster_down
}

# ---- What deaths leave -------------------------------------------------------

# resources PID: prints the descriptors, threads, mappings and KiB of memory of
# a process.
resources() {
    echo "$(ls "/proc/$1/fd" | wc -l) $(ls "/proc/$1/task" | wc -l)" \
        "$(wc -l <"/proc/$1/maps") $(rss_kib "$1")"
}

# same_resources NAME PID BEFORE: fails if the process holds more than BEFORE.
# Sanitizers keep memory that was freed, and map more as they need it.
same_resources() {
    local was now slack=2048 mappings=8
    if sanitized; then slack=131072 mappings=256; fi
    read -ra was <<<"$3"
    read -ra now <<<"$(resources "$2")"
    [ "${now[0]}" -le "${was[0]}" ] && [ "${now[1]}" -le "${was[1]}" ] &&
        [ "${now[2]}" -le "$((was[2] + mappings))" ] &&
        [ "${now[3]}" -le $((was[3] + was[3] / 100 + slack)) ] ||
        fail "$1: descriptors, threads, mappings and KiB were $3," \
            "and are ${now[*]}"
}

# in_generation: prints the number of the last generation, and its size.
in_generation() {
    awk '$1 == "right" && $2 > last { last = $2; size = $5 }
        END { print last, size }' job.out
}

# Kills the process HOST:PID $1 and waits until the others work without it.
kill_and_wait() {
    local generation=
    read -r generation _ <<<"$(in_generation)"
    kill -KILL "${1#*:}"
    wait_for "[ \"\$(in_generation | cut -d' ' -f1)\" -gt $generation ]"
}

# The victims die one after the other, each as soon as the others work without
# the one before, and are started again; then the same again.
test_deaths_leave_nothing() {
    local ranks=11 rounds=1 before=() names=() pids=() i round who
    if full; then ranks=26 rounds=4; fi
    start job "$HVDRUN" -np $ranks --min-np 1 --no-tag-output \
        --restart-failed $((rounds + 1)) "$PROG/elastic_steps" 10000000 1000 pr
    wait_for "[ \$(grep -c ^right job.out) -eq $ranks ]"
    mapfile -t who < <(members | sort -t: -k2n)
    names=("the survivor" "the agent" hvdrun)
    pids=("${who[0]#*:}" "$(job_pids job hvd-agent | head -n 1)"
        "$(job_pids job hvdrun)")
    for ((round = 0; round <= rounds; round++)); do
        mapfile -t who < <(members | grep -v ":${pids[0]}\$")
        # The first round, of one death, is for what is made only once.
        [ $round -gt 0 ] || who=("${who[0]}")
        for i in "${who[@]}"; do kill_and_wait "$i"; done
        wait_for "[ \"\$(in_generation | cut -d' ' -f2)\" -eq $ranks ]"
        [ $round -eq 0 ] || continue
        for i in "${pids[@]}"; do before+=("$(resources "$i")"); done
    done
    for i in 0 1 2; do
        same_resources "${names[i]}" "${pids[i]}" "${before[i]}"
    done
    kill -TERM "$pid"
    finish job 143
    gone job
}
