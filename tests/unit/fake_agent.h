/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that follows a script: it sends hvdrun, over stdout, what the test
 * wants, and reports on stderr whatever it did not expect on stdin.
 *
 * A script is a list of steps separated by `;`:
 *
 *     hello [VERSION]    greet INTERFACE (hello from there, else from lo)
 *     launch (wait for LAUNCH)
 *     started [N] (ranks, idle ones too; 2 unless given)
 *     out RANK STREAM TEXT        end RANK STREAM
 *     exit RANK CODE [SIGNAL]     ours RANK CODE (ended by hvdrun)
 *     blames RANK (the next rank to exit blames RANK)
 *     failed CODE TEXT   quit TEXT   done
 *     kill MS (wait for KILL with that grace)
 *     signal N (wait)    stdin RANK TEXT (wait)   stdineof RANK (wait)
 *     abort RANK (wait)  eof (wait for end of file)   garbage
 *     mute (answer no PING from now on)   slow MS (answer each PING so late)
 *     pause MS           barrier N (wait until N agents have come to it; each
 *                        adds a byte to the file that FAKE_BARRIER names)
 *     pings N (wait)     silence MS (wait for a PING that says so)
 *     ahead MS (of hvdrun's clock)   ago MS (when the next rank exited)
 *     say TEXT (to stderr)   flood RANK (output, until hvdrun hangs up)
 *     ready RANK   left RANK   change N (wait)   progress N
 *     generation N JOINED RANKS [WHY] (wait; RANKS as in 0,2,3)
 *     no-answer RANK PEER (RANK gets no answer from the host of PEER)
 *     notice RANK MS (wait; up to a second less, -1: not limited)
 *     removed RANK TEXT   evict RANK TEXT (wait)
 *     going MS TEXT   restart RANK (wait)
 *     hosts N (wait for HOSTS; N hosts can be reached)
 *     dies RANK TEXT (killed by signal 9, with TEXT as its last words)
 *
 * The agent exits at the end of its script.  LAUNCH tells it its host's name;
 * it goes on with the script FAKE_AGENT_<host>, if that is set.  It answers a
 * QUERY, which comes instead of LAUNCH, with FAKE_ANSWER_<host>; not at all if
 * that is "".
 */
#ifndef TESTS_FAKE_AGENT_H
#define TESTS_FAKE_AGENT_H

/* Runs `script`, which is modified; returns the exit status. */
int fake_agent_run(char *script);

#endif
