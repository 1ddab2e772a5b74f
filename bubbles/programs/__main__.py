"""`python -P -m bubbles.programs VERB`: what the launcher runs, and how one program starts another."""

from bubbles.programs.front import front

front()
