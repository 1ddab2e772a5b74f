#!/usr/bin/env bash
# Prints the pane that README.md shows: `bubbles agent` in a real terminal (tmux), on the model that `make demo` fetched.
# It types what a person would in the first minutes. Needs tmux, and `make demo` to have been run once.

set -euo pipefail
cd "$(dirname "$0")/.."

for variable in "${!BUBBLES_@}"; do unset "$variable"; done
question=${Q:-"In one sentence: what is a Unix pipe?"}
terminal=(tmux -L "bubbles-pane-$$" -f /dev/null)
trap '"${terminal[@]}" kill-server 2>/dev/null || true' EXIT

typed() { "${terminal[@]}" send-keys -l "$1" && "${terminal[@]}" send-keys Enter; }

shown() { "${terminal[@]}" capture-pane -p | sed -e 's/ *$//' | cat -s; }

await() { # until the pane shows a text
  for _ in $(seq 240); do
    if shown | grep -qE -- "$1"; then return; fi
    sleep 0.5
  done
  printf 'The pane never showed %q:\n%s\n' "$1" "$(shown)" >&2
  exit 1
}

"${terminal[@]}" new-session -d -x 100 -y 28 "env BUBBLES_HOME='$PWD/.demo/home' LC_ALL=C.UTF-8 bin/bubbles agent"
