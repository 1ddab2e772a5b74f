"""The registry of programs: for each its module, its place in the overview, its call, and one line on what it does.

`bubbles VERB` runs the program VERB, and so does `bubbles-VERB`. Nothing here is imported before it is run.
"""

from __future__ import annotations

# name: (module with `main(argv) -> status`, group in `bubbles --help`, arguments, what it does)
PROGRAMS: dict[str, tuple[str, str, str, str]] = {
    "agent": ("bubbles.programs.agent", "Talk", "[-m TEXT] [-s SESSION] [--here]", "talk with the assistant in this terminal"),
    "ask": ("bubbles.programs.ask", "Talk", "[-s SESSION] [TEXT]...", "one question, one reply: for pipes and scripts"),
    "send": ("bubbles.programs.send", "Pipes", "CHANNEL:CHAT [TEXT]...", "put a message into the queue of a chat"),
    "tail": ("bubbles.programs.tail", "Pipes", "[PATTERN]...", "follow what the assistant is doing"),
    "queue": ("bubbles.programs.queue", "Pipes", "list|show|release|drop", "look into the queues, release or drop what is held"),
    "history": ("bubbles.programs.history", "Pipes", "SESSION", "the messages of one session"),
    "scan": ("bubbles.programs.scan", "Pipes", "", "render JSON lines as lines for people"),
    "onboard": ("bubbles.programs.onboard", "Set up", "[--yes]", "create or refresh the configuration"),
    "models": ("bubbles.programs.models", "Set up", "fetch|list", "fetch a local model, list what can be asked"),
    "completion": ("bubbles.programs.completion", "Set up", "bash|zsh|fish", "print the completion script of a shell"),
    "status": ("bubbles.programs.status", "Run", "[--json]", "what is configured, and what is running"),
    "gateway": ("bubbles.programs.gateway", "Run", "", "run all daemons in this terminal, without systemd"),
    "cron": ("bubbles.programs.cron", "Run", "add|list|remove|...", "the jobs; without arguments: their daemon"),
    "agentd": ("bubbles.programs.agentd", "Daemons", "", "sessions, turns and tools"),
    "modeld": ("bubbles.programs.modeld", "Daemons", "", "the only daemon that asks models and holds their keys"),
}
