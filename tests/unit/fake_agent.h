/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that follows a script: it says to hvdrun, over stdin and stdout,
 * what the test wants, and complains on stderr of what it did not expect.
 *
 * A script is a list of steps separated by `;`:
 *
 *     hello [VERSION]    launch (wait for LAUNCH)      started
 *     out RANK STREAM TEXT        end RANK STREAM
 *     exit RANK CODE [SIGNAL]     ours RANK CODE (ended by hvdrun)
 *     failed CODE TEXT   quit TEXT   done
 *     kill MS (wait for KILL with that grace)
 *     signal N (wait)    stdin RANK TEXT (wait)   stdineof RANK (wait)
 *     abort RANK (wait)  eof (wait for end of file)   garbage
 *     mute (answer no PING from here on)   slow MS (answer each so late)
 *     pause MS
 *     pings N (wait)     silence MS (wait for a PING that says so)
 *     ahead MS (of hvdrun's clock)   ago MS (when the next rank exited)
 *     say TEXT (to stderr)   flood RANK (output, until hvdrun hangs up)
 *
 * and the agent exits at its end.  The host name comes with LAUNCH; the
 * script goes on with FAKE_AGENT_<host>, if that is set.
 */
#ifndef TESTS_FAKE_AGENT_H
#define TESTS_FAKE_AGENT_H

/* Returns the exit status; cuts the script up. */
int fake_agent_run(char *script);

#endif
