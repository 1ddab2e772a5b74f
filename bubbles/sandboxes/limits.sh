# shellcheck shell=bash
# Read by the bash of each command before the command itself (BASH_ENV): no core dumps, 4096 open files, a size that no file may pass (2 GiB,
# or BUBBLES_FILE_KIB), in a jail also a number of processes, and where memory runs out, this goes before the daemon that keeps sessions (a
# process may raise its own number, and nobody lowers it again). BUBBLES_JOIN is the list of a control group that bounds the rest.
# bash's own, so that no further program has to be started for it; and nothing of Python may run between fork and exec.
unset BASH_ENV
[ -z "${BUBBLES_JOIN:-}" ] || echo 0 >"$BUBBLES_JOIN" || exit 125
ulimit -c 0
{ ulimit -n 4096; ulimit -f "${BUBBLES_FILE_KIB:-2097152}"; } 2>/dev/null
# Signals and messages that wait: the kernel counts them by user, across all jails, and the owner's other programs need some.
{ ulimit -i 4096; ulimit -q 409600; } 2>/dev/null
[ -z "${BUBBLES_PROCESSES:-}" ] || ulimit -u "$BUBBLES_PROCESSES" 2>/dev/null
{ echo 800 >/proc/self/oom_score_adj; } 2>/dev/null
unset BUBBLES_JOIN BUBBLES_FILE_KIB BUBBLES_PROCESSES
