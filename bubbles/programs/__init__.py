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
    "queue": ("bubbles.programs.queue", "Pipes", "list|show|settle|...", "look into the queues, release, drop or settle what is held"),
    "history": ("bubbles.programs.history", "Pipes", "SESSION", "the messages of one session"),
    "scan": ("bubbles.programs.scan", "Pipes", "", "render JSON lines as lines for people"),
    "onboard": ("bubbles.programs.onboard", "Set up", "[--yes]", "create or refresh the configuration"),
    "models": ("bubbles.programs.models", "Set up", "list|route|test|fetch", "list what can be asked, try it; fetch a local model"),
    "provider": ("bubbles.programs.provider", "Set up", "login|logout|status [NAME]", "sign in to a provider by a subscription of yours"),
    "completion": ("bubbles.programs.completion", "Set up", "bash|zsh|fish", "print the completion script of a shell"),
    "status": ("bubbles.programs.status", "Run", "[--json]", "what is configured, what runs, and what is wrong"),
    "usage": ("bubbles.programs.usage", "Run", "[--since TIME] [--by day|model|...]", "how many tokens the models took, and what that cost"),
    "channels": ("bubbles.programs.channels", "Run", "status [NAME]", "how each channel stands"),
    "units": ("bubbles.programs.units", "Run", "install|remove|verify", "keep everything on by systemd: the units, and what they should be"),
    "audit": ("bubbles.programs.audit", "Run", "[-s SESSION] [--turn ID] [-f]", "what the log holds: messages, models, tools, trouble"),
    "gateway": ("bubbles.programs.gateway", "Run", "", "run everything in this terminal, or follow what systemd runs"),
    "doctor": ("bubbles.programs.doctor", "Run", "[--fix] [CHECK]...", "look at everything, say what is wrong and what to do about it"),
    "sandbox": ("bubbles.programs.sandbox", "Run", "probe|list|describe|shell", "where commands run: does it hold, what is in it; look inside"),
    "tidy": ("bubbles.programs.tidy", "Run", "[--dry-run] [--all]", "delete what has served its time: old data, handled messages"),
    "backup": ("bubbles.programs.backup", "Run", "[FILE|-]", "write the whole home into one file, while everything runs"),
    "restore": ("bubbles.programs.restore", "Run", "[--list] FILE|-", "make a backup the home again, or look into one"),
    "cron": ("bubbles.programs.cron", "Run", "add|list|remove|...", "the jobs; without arguments: their daemon"),
    "agentd": ("bubbles.programs.agentd", "Daemons", "", "sessions, turns and tools"),
    "channel": ("bubbles.programs.channel", "Daemons", "NAME", "one platform: what is said there, and what is sent to it"),
    "modeld": ("bubbles.programs.modeld", "Daemons", "", "the only daemon that asks models and holds their keys"),
}
