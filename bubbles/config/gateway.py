"""The section `gateway`: where channels on other machines connect, and where trouble is told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from bubbles.config.section import Section, not_yet


class Gateway(Section):
    """The section `gateway`. Port 0: nothing listens, which is also all that is built."""

    host: Annotated[str, not_yet("a relay for channels on other machines", "127.0.0.1")] = "127.0.0.1"
    port: Annotated[StrictInt, Field(ge=0, le=65535), not_yet("a relay for channels on other machines", 0)] = 0
    alerts: Annotated[str, not_yet("telling a chat about trouble", "")] = ""  # an address: telegram:42
