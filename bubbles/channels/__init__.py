"""The platforms: what all of them share (README.md), and one file a platform.

    channel.py    what a platform's file has to do          outbound.py   one chat after the other, and each in its order
    frame.py      what is done for all of them              delivery.py   one message, from its queue to its end
    inbound.py    from the platform to the spool            receipts.py   what is known of each send, on disk
    link.py       the connection, and its end               liveness.py   whether the platform is still there
    gate.py       who is heard, and who is let in           policy.py     by which rules
    pairing.py    who was let in, on disk                   texts.py      what a channel itself says
    split.py      a long text in pieces                     markdown.py   the dialects of platforms
    mentions.py   who is meant by <@id>                     pace.py       how fast a platform is spoken to
    drafts.py     words that grow before a reader's eyes    progress.py   what else is shown while a turn goes on
    media.py      files that come in and go out             settings.py   what the owner, and a test, may decide

`CHANNELS` names where each platform's class is found, so that listing them loads none of them. A channel is made with its section of the
configuration (config/channels.py) alone.
"""

from __future__ import annotations

CHANNELS: dict[str, str] = {}  # name: "bubbles.channels.NAME:Class"
