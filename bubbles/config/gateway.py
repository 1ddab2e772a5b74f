"""The section `gateway`: where channels on other machines connect, and where trouble is told."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt

from bubbles.config.section import Name, Section, not_yet
from bubbles.errors import DataError
from bubbles.messages import Address


def _address(value: str) -> str:
    try:
        if not value or Address.parse(value).channel not in ("cli", "shell", "cron", "agentd"):
            return value
    except DataError:
        pass
    raise ValueError('a chat such as telegram:42; "" for none')


class Gateway(Section):
    """The section `gateway`. Port 0: nothing listens, which is also all that is built."""

    host: Annotated[str, not_yet("a relay for channels on other machines", "127.0.0.1")] = "127.0.0.1"
    port: Annotated[StrictInt, Field(ge=0, le=65535), not_yet("a relay for channels on other machines", 0)] = 0
    alerts: Annotated[Name, AfterValidator(_address)] = ""  # where trouble is told: telegram:42; "": in the log alone
