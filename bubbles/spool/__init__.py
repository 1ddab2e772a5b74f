"""Queues on disk. What a message's file goes through, and what a crash leaves of it, stands in README.md."""

from bubbles.spool.files import STATES
from bubbles.spool.queue import Item, Queue

__all__ = ["STATES", "Item", "Queue"]
