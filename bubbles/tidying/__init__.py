"""What has served its time, and how it goes: files by their age, a bounded number at a time, beside daemons that run.

    ages.py       how long each kind is kept, and what time it is where a clock was stepped
    walk.py       directories by descriptors: no link is followed, no other disk is entered
    spared.py     what is old and still needed: by a turn that is open, by a message that waits
    sessions.py   data/, and what half-written files were left in a session
    spool.py      done/, tmp/, receipts, media that no message names
    leftovers.py  turns that were decided on; sockets and loans that nobody holds
    sweep.py      one from each place in turn, until enough are gone
"""
