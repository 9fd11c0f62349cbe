# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Job control at a terminal: Ctrl-C, Ctrl-Z and fg, background jobs, and a
# terminal that goes away.

# Runs the steps of `pty` in $@ on an interactive shell, so that job control is
# real.
at_terminal() {
    HVD_TEST_JOB=$HVD_TEST_TOKEN.tty "$PROG/pty" -s 30 "$@" -- \
        env PS1='ready> ' TERM=dumb HISTFILE= bash --norc --noprofile -i
}

ticker() {
    cat >ticker <<'SH'
#!/bin/sh
trap '' TTOU
while [ ! -e stop ]; do
    echo tick >>ticks.$HVD_RANK
    sleep 0.05
done
echo finished
SH
    chmod +x ticker
}

ranks_state() {
    local p s=
    for p in $(job_pids tty ticker); do
        s=$s$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$p/status")
    done
    echo "$s"
}

test_ctrl_c() {
    at_terminal 'expect:ready> ' \
        "send:$HVDRUN -np 2 --grace 1 $PROG/actor tree up; echo code=\$?\\n" \
        'file:up.0' 'file:up.1' 'send:\003' 'expect:code=130' \
        'send:exit\n' >screen
    grep -q 'hvdrun: SIGINT: ending the job' screen
    wait_for 'gone tty'
}

test_ctrl_c_twice() {
    local t=$SECONDS
    at_terminal 'expect:ready> ' \
        "send:$HVDRUN -np 2 --grace 100 $PROG/actor tree up; echo code=\$?\\n" \
        'file:up.0' 'file:up.1' 'send:\003' 'expect:^C' 'expect:hvdrun:' \
        'send:\003' \
        'expect:code=130' 'send:exit\n' >screen
    [ $((SECONDS - t)) -lt 60 ]
    wait_for 'gone tty'
}

test_ctrl_z_and_fg() {
    local driver
    ticker
    at_terminal 'expect:ready> ' "send:$HVDRUN -np 2 ./ticker\\n" \
        'file:ticks.0' 'file:ticks.1' 'send:\032' 'expect:Stopped' \
        'touch:suspended' 'file:checked' 'send:fg\n' 'file:resumed' \
        'touch:stop' 'expect:finished' 'expect:finished' 'expect:ready> ' \
        'send:echo code=$?\n' 'expect:code=0' 'send:exit\n' >screen &
    driver=$!
    wait_for '[ -e suspended ]'
    # (a rank that is just forking its sleep shows twice)
    wait_for '[[ "$(ranks_state)" =~ ^TT+$ ]]'
    touch checked
    rm ticks.*
    wait_for '[ -e ticks.0 ] && [ -e ticks.1 ]'
    touch resumed
    wait $driver
    wait_for 'gone tty'
}

test_ctrl_z_then_end() {
    ticker
    at_terminal 'expect:ready> ' "send:$HVDRUN -np 2 --grace 1 ./ticker\\n" \
        'file:ticks.0' 'file:ticks.1' 'send:\032' 'expect:Stopped' \
        'send:kill %1; fg; echo code=$?\n' 'expect:code=143' \
        'send:exit\n' >screen
    wait_for 'gone tty'
}

test_hangup_of_the_terminal() {
    at_terminal 'expect:ready> ' \
        "send:exec $HVDRUN -np 2 --grace 1 $PROG/actor tree up\\n" \
        'file:up.0' 'file:up.1' hangup >screen || :
    wait_for -t 15 'gone tty'
}

# In the background, hvdrun writes to the terminal but never reads from it.
test_background() {
    at_terminal 'expect:ready> ' "send:$HVDRUN -np 2 sh -c 'echo b''g' &\\n" \
        'expect:<stdout>:bg' 'expect:<stdout>:bg' 'send:wait\n' \
        'send:echo code=$?\n' 'expect:code=0' 'send:exit\n' >screen
}

test_keyboard_to_a_rank() {
    at_terminal 'expect:ready> ' \
        "send:$HVDRUN -np 2 --stdin 1 --no-tag-output sh -c 'touch up; cat'\\n" \
        'file:up' 'send:hello rank\n' 'expect:hello rank' \
        'expect:hello rank' 'send:\004' 'expect:ready> ' 'send:exit\n' >screen
}
