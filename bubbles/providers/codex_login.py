"""Signing in to OpenAI Codex: by a browser (an authorisation code with PKCE, which comes back to this machine's loopback), or by a code.

The client is the one that OpenAI has registered for this: a public one, without a secret; its way back is one fixed address.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from bubbles.errors import NotAuthorized, Rejected
from bubbles.providers.authority import Told, ask
from bubbles.providers.issuer import Device, claims, without
from bubbles.providers.tokens import Login, remedy

ADDRESS = "https://auth.openai.com"
PORT = 1455  # of the way back; no other is registered
CALLBACK = "/auth/callback"
_CLIENT = "app_EMoamEEZ73f0CkXaXp7hrann"
_SCOPE = "openid profile email offline_access"
_LASTS_S = 15 * 60.0  # of a code
_ABOUT = "https://api.openai.com/auth"  # where a token tells of the account
_NAME = "openai_codex"


@dataclass(frozen=True, slots=True)
class Browser:
    """A login by a browser: what to open, and what the answer is held against."""

    address: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)


class Codex:
    """OpenAI's authority, at `address`."""

    def __init__(self, address: str = "", now: Callable[[], float] = time.time) -> None:
        self._address, self._now = (address or ADDRESS).rstrip("/"), now

    # -- by a browser ------------------------------------------------------------------------------

    def browser(self) -> Browser:
        """A login to be opened in a browser."""
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        query = {
            "response_type": "code",
            "client_id": _CLIENT,
            "redirect_uri": _back(),
            "scope": _SCOPE,
            "code_challenge": challenge(verifier),
            "code_challenge_method": "S256",
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
            "state": state,
            "originator": "codex_cli_rs",
        }
        return Browser(f"{self._address}/oauth/authorize?{urlencode(query)}", state, verifier)

    async def came_back(self, browser: Browser, address: str) -> Login:
        """The login that the address tells of to which the browser was sent. Raises Rejected where it is not the answer to this one."""
        return await self._exchanged(code_in(address, browser.state), browser.verifier, _back())

    # -- by a code ---------------------------------------------------------------------------------

    async def begin(self) -> Device:
        told = await ask(f"{self._address}/api/accounts/deviceauth/usercode", body={"client_id": _CLIENT})
        if told.status == 404:
            raise Rejected("this account, or this address, allows no login by a code", remedy="bubbles provider login openai-codex --browser")
        if told.status != 200:
            raise Rejected(f"no code was given: {told.words}")
        code, secret = told.text("user_code") or told.text("usercode"), told.text("device_auth_id")
        if not code or not secret:
            raise without("a code")
        return Device(code, f"{self._address}/codex/device", told.seconds("interval", 5.0), told.seconds("expires_in", _LASTS_S), secret)

    async def look(self, device: Device) -> Login | float:
        told = await ask(f"{self._address}/api/accounts/deviceauth/token", body={"device_auth_id": device.secret, "user_code": device.code})
        if told.status in (403, 404):  # not yet; what is more is told by name
            if told.code in ("access_denied", "authorization_declined"):
                raise NotAuthorized("the login was refused", remedy=remedy(_NAME))
            return device.interval_s + (5.0 if told.code == "slow_down" else 0.0)
        code, verifier = told.text("authorization_code"), told.text("code_verifier")
        if told.status != 200:
            raise NotAuthorized(f"the login failed: {told.words}", remedy=remedy(_NAME))
        if not code or not verifier:
            raise without("an authorisation")
        return await self._exchanged(code, verifier, f"{self._address}/deviceauth/callback")

    # -- tokens ------------------------------------------------------------------------------------

    async def renew(self, login: Login) -> Login:
        body = {"client_id": _CLIENT, "grant_type": "refresh_token", "refresh_token": login.refresh, "scope": _SCOPE}
        told = await ask(f"{self._address}/oauth/token", body=body)
        if told.status != 200:
            raise NotAuthorized(f"the login is not good any more: {told.words}", remedy=remedy(_NAME))
        return self._taken(told, replace(login, refresh=told.text("refresh_token") or login.refresh))

    async def revoke(self, login: Login) -> bool:
        body = {"client_id": _CLIENT, "token": login.refresh, "token_type_hint": "refresh_token"}
        return (await ask(f"{self._address}/oauth/revoke", body=body)).status == 200

    async def _exchanged(self, code: str, verifier: str, back: str) -> Login:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": _CLIENT, "code_verifier": verifier}
        told = await ask(f"{self._address}/oauth/token", form=form)
        if told.status != 200:
            raise NotAuthorized(f"the login failed: {told.words}", remedy=remedy(_NAME))
        if not told.text("refresh_token"):
            raise without("a refresh token")
        return self._taken(told, Login(self._now(), told.text("refresh_token")))

    def _taken(self, told: Told, login: Login) -> Login:
        """A login with the access token of an answer. How long that lives is told by itself: two clocks need not agree on when it ends."""
        access = told.text("access_token")
        if not access:
            raise without("an access token")
        said, now = claims(access), self._now()
        lives = told.seconds("expires_in", 0.0) or _number(said.get("exp")) - _number(said.get("iat"))
        if lives <= 0:
            lives = max(0.0, _number(said.get("exp")) - now)
        person = claims(told.text("id_token"))
        about: dict[str, Any] = next((each[_ABOUT] for each in (person, said) if isinstance(each.get(_ABOUT), dict)), {})
        return replace(
            login,
            access=access,
            made_at=now,
            expires_at=now + lives if lives > 0 else 0.0,
            account=str(person.get("email") or login.account),
            account_id=str(about.get("chatgpt_account_id") or login.account_id),
            plan=str(about.get("chatgpt_plan_type") or login.plan),
        )


def challenge(verifier: str) -> str:
    """What proves later that whoever shows `verifier` is whoever began (S256).

    >>> challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM'
    """
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def code_in(address: str, state: str) -> str:
    """The code in the address to which a browser was sent back. Raises Rejected for another login's, NotAuthorized where that was refused."""
    try:
        query = {name: values[-1] for name, values in parse_qs(urlsplit(address.strip()).query).items()}
    except ValueError:
        query = {}
    if not secrets.compare_digest(query.get("state", "").encode(), state.encode()):
        whole = "the whole address that the browser shows at the end, from http:// on"
        raise Rejected("that is not the answer to this login", remedy=f"paste {whole}")
    if refused := query.get("error_description") or query.get("error"):
        raise NotAuthorized(f"the login was refused: {refused[:200]}", remedy=remedy(_NAME))
    if not query.get("code"):
        raise Rejected("that address holds no code")
    return query["code"]


def _back() -> str:
    return f"http://localhost:{PORT}{CALLBACK}"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
