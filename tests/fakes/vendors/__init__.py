"""Scripted servers that speak the protocols of the vendors, each in a process of its own: see `__main__`."""
