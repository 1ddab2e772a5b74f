#!/usr/bin/env bash
# Prints the pane that README.md shows: the first minutes of a new installation in a real terminal (tmux), on the model that
# `make demo` fetched. It types what a person would type, into a home of its own. Needs tmux, and `make demo` to have been run.

set -euo pipefail
cd "$(dirname "$0")/.."

for variable in "${!BUBBLES_@}"; do unset "$variable"; done
export LC_ALL=C.UTF-8
terminal=(tmux -L "bubbles-pane-$$" -f /dev/null)
trap '"${terminal[@]}" kill-server 2>/dev/null || true' EXIT

type_in() { "${terminal[@]}" send-keys -l "$1" && "${terminal[@]}" send-keys Enter; }

shown() { "${terminal[@]}" capture-pane -p | sed -e 's/ *$//'; }

await() { # until a command says that it is true
  for _ in $(seq 600); do
    if "$@"; then return; fi
    sleep 0.2
  done
  printf 'The pane never came to: %s\n%s\n' "$*" "$(shown)" >&2
  exit 1
}

ready() { [ "$(shown | grep -v '^$' | tail -n 1)" = "$1" ] && ! shown | grep -q '^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]'; } # which spins while it thinks

answered() { ready "$2" && shown | awk -v said="$1" -v prompt="$2" 'seen && /./ && $0 != prompt { n++ } index($0, said) { seen = 1 } END { exit !n }'; }

say() { type_in "$1" && await answered "$1" "$2"; } # a line, and wait for what comes of it

"${terminal[@]}" new-session -d -x 100 -y 32 \
  "env BUBBLES_HOME='$PWD/.demo/pane-$$' PATH='$PWD/bin:$PATH' PS1='$ ' bash --norc --noprofile"
await ready '$'
say "bubbles models fetch --from $(echo .demo/home/models/*.gguf)" '$'
say 'bubbles onboard --yes' '$'
"${terminal[@]}" send-keys C-l
say 'bubbles agent' 'main ›'
say '/session my' 'my ›'
say 'What is the capital of France?' 'my ›'
say 'Which river runs through it?' 'my ›'
shown | cat -s
type_in exit
