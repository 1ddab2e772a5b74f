"""What an endpoint's address says by itself. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_here(url: str) -> bool:
    """Whether it is this machine that is asked: no proxy is used for it.

    >>> is_here("http://localhost:11434/v1"), is_here("http://[::1]:1"), is_here("https://api.example.org/v1")
    (True, True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def where(url: str) -> str:
    """The host, and the port where one is named."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
