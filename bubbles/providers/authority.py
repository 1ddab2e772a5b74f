"""A server that hands out tokens: one request, one answer in JSON. It does not know what is asked for, nor tries again."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from bubbles import __version__, log
from bubbles.errors import ModelDown, ModelError, RateLimited, Rejected
from bubbles.providers.address import is_here, where
from bubbles.providers.origin import Exchange, Origin
from bubbles.providers.retry import retry_after_s

_SILENCE_S, _TOTAL_S = 20.0, 30.0
_MOST = 1 << 20  # bytes of an answer
_TEXT_MOST = 300  # characters of its words that an error carries


@dataclass(frozen=True, slots=True)
class Told:
    """An answer. `body` is {} where it is no JSON object; `after_s`: how long it asks to be left alone."""

    status: int
    body: dict[str, Any]
    after_s: float = 0.0

    @property
    def code(self) -> str:
        """What the error calls itself, in any of the forms that there are; "" where there is none."""
        error = self.body.get("error")
        code = error.get("code") or error.get("type") if isinstance(error, dict) else error or self.body.get("code")
        return str(code or "")

    @property
    def words(self) -> str:
        """The status, and what the server says for people."""
        error, more = self.body.get("error"), self.body.get("error_details")
        found = [each.get("message") for each in (more, error) if isinstance(each, dict)]
        found += [self.body.get("error_description"), self.body.get("message"), self.body.get("detail"), self.code]
        text = next((str(each) for each in found if each), "no reason given")
        return f"HTTP {self.status}: {log.clipped(' '.join(text.split()), _TEXT_MOST)}"

    def text(self, name: str) -> str:
        """A field that is text; "" where it is none."""
        found = self.body.get(name)
        return found if isinstance(found, str) else ""

    def seconds(self, name: str, otherwise: float) -> float:
        """A field that counts seconds, as a number or as text."""
        try:
            found = float(self.body.get(name, otherwise))
        except (TypeError, ValueError):
            return otherwise
        return found if 0 < found < 1e9 else otherwise


async def ask(
    url: str, *, form: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> Told:
    """One request: POST with a form or with JSON, else GET. Raises ModelDown, RateLimited, Rejected."""
    data, kind = b"", ""
    if form is not None:
        data, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
    elif body is not None:
        data, kind = json.dumps(body).encode(), "application/json"
    sent = {"User-Agent": f"bubbles/{__version__}", "Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"}
    sent |= {**({"Content-Type": kind} if kind else {}), **(headers or {})}
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        origin = Origin(url, proxied=not is_here(url))
        exchange = origin.request("POST" if kind else "GET", target, sent, data, silence_s=_SILENCE_S, total_s=_TOTAL_S)
        async with exchange as response:
            read = await _read(response)
            told = Told(response.status, _object(read), retry_after_s(response.headers, 0.0))
        await origin.close()
    except ValueError as error:
        raise Rejected(log.struck(str(error)), remedy="look at auth_url") from error
    except TimeoutError as error:
        raise ModelDown(f"no answer from {where(url)} in {_SILENCE_S:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise Rejected(f"{where(url)}: {error.verify_message}", remedy="look at the machine's clock and certificates, and at auth_url") from error
    except OSError as error:
        raise ModelDown(f"{where(url)}: {error.strerror or error or type(error).__name__}") from error
    if trouble := _trouble(told, url):
        raise trouble
    return told


def _trouble(told: Told, url: str) -> ModelError | None:
    """What has nothing to do with who asks."""
    if told.status == 429:
        return RateLimited(f"{where(url)}: {told.words}", retry_after_s=told.after_s)
    if told.status >= 500:
        return ModelDown(f"{where(url)}: {told.words}", retry_after_s=told.after_s)
    return None


async def _read(response: Exchange) -> bytes:
    data = bytearray()
    while block := await response.block():
        data += block
        if len(data) > _MOST:
            raise Rejected(f"an answer of more than {_MOST >> 20} MiB")
    return bytes(data)


def _object(data: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, dict):
            return found
    return {}
