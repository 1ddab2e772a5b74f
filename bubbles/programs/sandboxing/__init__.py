"""What `bubbles sandbox` is made of.

    inside.py   a session's sandbox, opened from the settings without agentd
    words.py    a jail in words
    visit.py    a person in a jail: the terminal, the way out, the exit code
    trials.py   what a probe found, as lines for a person

It does not know how a jail is made: `bubbles.sandboxes` does.
"""
