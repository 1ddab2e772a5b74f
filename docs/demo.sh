#!/usr/bin/env bash
# What `make demo` shows. First a real answer from a model that runs on this machine; then, with a scripted model in its place,
# a turn in which files are written, a command is run and its result is told. Both homes lie under .demo/.
#
#   make demo                     a question of its own
#   make demo Q="your question"   yours

set -euo pipefail
cd "$(dirname "$0")/.."

for variable in "${!BUBBLES_@}"; do unset "$variable"; done # no setting and no key of yours takes part

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

tell() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

run() { # shows a command as one would type it, and runs it
  printf '$'
  for word in "$@"; do
    case $word in *[!A-Za-z0-9_./:=@-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
  done
  printf '\n'
  "$@"
}

fail() {
  printf '\nThe demonstration failed: %s\n' "$*" >&2
  exit 1
}

# --- A model on this machine ---------------------------------------------------------------------------------------------

question=${Q:-"What is the capital of France? Answer in one short sentence."}
session=demo-$(date +%H%M%S)
export BUBBLES_HOME=$PWD/.demo/home

tell "1. A real model, on this machine: no key, and no network once its file (93 MB) is here."
run bin/bubbles onboard --yes --provider embedded || fail "the model could not be set up"

tell "2. A question goes the whole way: terminal → queue on disk → session → model → terminal."
run bin/bubbles agent -s "$session" -m "$question" || fail "the model did not answer"

# The proof is the session's own history: who answered, and how many tokens that took.
.venv/bin/python docs/who_answered.py "$BUBBLES_HOME/sessions/$session/session.jsonl" || fail "the model did not run"

# --- A scripted model ----------------------------------------------------------------------------------------------------

tell "3. Now a turn with tools. The model of step 1 is too small to use them, so here a SCRIPTED model speaks:"
echo "   its lines are fixed (docs/demo.json). All else is real: queue, session, files, shell, history."
export BUBBLES_HOME=$PWD/.demo/scripted
mkdir -p .demo
coproc MODEL { exec .venv/bin/python -m tests.fakes.model --script docs/demo.json --with-parent; }
read -r -t 30 url <&"${MODEL[0]}" || fail "the scripted model did not start"
export BUBBLES_AGENTS__DEFAULTS__PROVIDER=custom BUBBLES_AGENTS__DEFAULTS__MODEL=scripted BUBBLES_PROVIDERS__CUSTOM__BASE_URL=$url

bin/bubbles gateway 2>.demo/gateway.log & # so that these daemons end together with their model
gateway=$!
trap 'kill "$gateway" "$MODEL_PID" 2>/dev/null || true; wait "$gateway" 2>/dev/null || true' EXIT
for _ in $(seq 300); do
  if grep -q '^gateway: .*Ctrl-C' .demo/gateway.log; then break; fi
  kill -0 "$gateway" 2>/dev/null || fail "the daemons did not start: see .demo/gateway.log"
  sleep 0.1
done

run bin/bubbles agent -s "$session" -m "Write a shell script that prints the squares of 1 to 5, run it, keep its output in a file, and tell me the result." ||
  fail "the turn with tools did not end well"

tell "4. What happened, from the session's history, and what it left in its working directory:"
echo "$ bin/bubbles history $session | bin/bubbles scan"
bin/bubbles history "$session" | bin/bubbles scan
work=.demo/scripted/sessions/$session/work
run ls -l "$work"
run cat "$work/squares.txt" || fail "the command's output is not there"
[ "$(tail -n 1 "$work/squares.txt")" = "5 x 5 = 25" ] || fail "squares.txt is not what the script should have written"

cat <<TEXT

${bold}That was all of it. Three things to type next:${plain}

  BUBBLES_HOME=.demo/home bin/bubbles agent        go on talking with the model of step 1
  bin/bubbles onboard                              an installation of your own, in ~/.bubbles
  git log -3 | bin/bubbles ask 'what changed?'     after that: a question in a pipe

TEXT
