"""Bubbles: a local-first personal assistant made of small programs."""

__version__ = "0.1.0"
