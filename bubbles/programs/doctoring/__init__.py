"""The checks of `bubbles doctor`: what each asks, in the order in which they are told.

    finding.py    what a check says, and how it may be mended        installed.py  Python and packages
    rounds.py     runs the checks side by side, none for ever         owned.py      the home, its modes, the sockets
    said.py       what a program of the machine says, in bounded time settings.py   the configuration, the models
    told.py       findings as lines for a person                      alive.py      daemons and channels that run
    logged.py     the journal: kept, readable, wide enough            stored.py     files that cannot be read, what is held
    alone.py      a daemon's place, while its own is mended           machine.py    clock, disks, file systems
                                                                      manned.py     systemd: units, linger, how they ended
                                                                      ground.py     what sandboxes stand on: namespaces, cgroups

It does not know what a check does: each is loaded by its name when it runs, so that one that cannot be loaded is a finding too.
"""

from __future__ import annotations

from bubbles.programs.doctoring.finding import Check

CHECKS = (
    Check("python", "Program", "is this Python new enough?", "installed:python"),
    Check("packages", "Program", "is every package here that is needed, and new enough?", "installed:packages"),
    Check("daemons", "Program", "do the daemons answer, and are they of this version?", "alive:daemons", limit_s=30),
    Check("channels", "Program", "is every channel that is switched on there, and connected?", "alive:channels", limit_s=30),
    Check("home", "Home", "can the home be used, and by its owner alone?", "owned:home"),
    Check("modes", "Home", "are its files its owner's, and private?", "owned:modes", limit_s=30),
    Check("sockets", "Home", "can the programs reach each other?", "owned:sockets", limit_s=30),
    Check("config", "Configuration", "does every setting load, of the sessions too?", "settings:configuration"),
    Check("model", "Configuration", "is it said which model is asked?", "settings:model"),
    Check("providers", "Configuration", "does each provider that is set up let us in?", "settings:providers", limit_s=40),
    Check("answer", "Configuration", "does the model answer a question? (with --ask)", "settings:answer", limit_s=150),
    Check("restart", "Configuration", "did every daemon start with the settings of now?", "alive:restart", limit_s=30),
    Check("histories", "Data", "can the histories be read?", "stored:histories", limit_s=40),
    Check("turns", "Data", "can the journals of running turns be read?", "stored:turns", limit_s=40),
    Check("lists", "Data", "can the jobs and the bound chats be read?", "stored:lists"),
    Check("usage", "Data", "can what the models cost be read?", "stored:usage", limit_s=40),
    Check("queues", "Data", "is everything in the queues a message?", "stored:queued", limit_s=40),
    Check("held", "Data", "does anything wait for a person's word?", "stored:held", limit_s=40),
    Check("units", "systemd", "are the units installed, and as this version writes them?", "manned:units", limit_s=70),
    Check("ends", "systemd", "can every unit be used, and how did those end that were started again?", "manned:ends", limit_s=40),
    Check("linger", "systemd", "do the units start at boot, and stay after the last logout?", "manned:linger"),
    Check("journal", "Log", "is the journal kept, and can you read it?", "logged:journal", limit_s=20),
    Check("rate", "Log", "does the journal take as much as may be said, and has it left anything out?", "logged:rate", limit_s=30),
    Check("clock", "Machine", "is the clock right?", "machine:clock"),
    Check("disk", "Machine", "is there room?", "machine:disk"),
    Check("files", "Machine", "do locks hold on the disk that the home is on, and does it last?", "machine:file_system"),
    Check("namespaces", "Sandbox", "does the sandbox work, and do jails hold here?", "ground:namespaces", limit_s=50),
    Check("cgroups", "Sandbox", "do limits of memory and processes hold?", "ground:cgroups"),
)
