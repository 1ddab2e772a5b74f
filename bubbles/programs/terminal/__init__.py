"""What the programs that speak with a person at a terminal share: the channel `cli`, seen from its other end.

conversation.py  one session, asked and answered        stream.py    a turn's parts as they come (pure)
seen.py          what this person has seen of it        markdown.py  a reply as a terminal shows it
commands.py      /session, /config and the others       screen.py    the interactive terminal
"""
