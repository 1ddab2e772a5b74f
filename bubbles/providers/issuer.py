"""Who signs a person in: by a code that is typed on any device, and where it can, by a browser on this machine. The protocol of all such."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from bubbles.errors import Rejected
from bubbles.providers.tokens import Login


@dataclass(frozen=True, slots=True)
class Device:
    """A login that a person finishes elsewhere: types `code` at `address`, within `lasts_s`. `interval_s`: how often it may be asked after."""

    code: str
    address: str
    interval_s: float
    lasts_s: float
    secret: str = field(repr=False)


class Issuer(Protocol):
    """One provider's authority. Everything raises ModelError: NotAuthorized where the person, or the provider, refuses."""

    async def begin(self) -> Device:
        """A login by a code."""
        ...

    async def look(self, device: Device) -> Login | float:
        """What became of it: the login, or with how many seconds between two looks it is to be asked again."""
        ...

    async def renew(self, login: Login) -> Login:
        """The same login with a new access token."""
        ...

    async def revoke(self, login: Login) -> bool:
        """End the login at the provider; False where there is no way to do that from here."""
        ...


def claims(token: str) -> dict[str, Any]:
    """What a JSON web token says of itself, unproven; {} where it is none."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, LookupError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def without(field: str) -> Rejected:
    """The error for an answer in which something is missing."""
    return Rejected(f"an answer without {field}")
