"""The proof that nothing is lost: real daemons, killed at every hop of a message's way, and one judge who looks from outside.

`hops` names the places and wraps the product's own functions there, `launch` starts a daemon that dies where it is told to,
`faults` breaks a daemon on purpose, `town` is a home with its daemons and the people who write to it, `judge` says what became of
every word. The product has no hook for any of it.
"""
