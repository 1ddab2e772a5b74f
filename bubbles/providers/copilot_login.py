"""Signing in to GitHub Copilot: a code that is typed at GitHub, and then, for an hour at most each, tokens that Copilot takes.

The client is the one that GitHub has registered for Copilot in editors: a public one, without a secret, so that no login can be revoked from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from bubbles.errors import NotAuthorized, Rejected
from bubbles.providers.address import is_here
from bubbles.providers.authority import Told, ask
from bubbles.providers.issuer import Device, without
from bubbles.providers.tokens import Login, remedy

ADDRESS = "https://github.com"
EDITOR = {  # without these it answers nobody
    "Editor-Version": "vscode/1.107.0",
    "Editor-Plugin-Version": "copilot-chat/0.35.0",
    "Copilot-Integration-Id": "vscode-chat",
    "X-GitHub-Api-Version": "2025-04-01",
}
_CLIENT = "Iv1.b507a08c87ecfe98"
_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_LASTS_S = 15 * 60.0
_SLOWER_S = 5.0
_NAME = "github_copilot"
_OVER = {
    "access_denied": "the login was refused",
    "expired_token": "the code has expired",
    "token_expired": "the code has expired",
}


class Copilot:
    """GitHub's authority, at `address`: its own, or a company's."""

    def __init__(self, address: str = "", now: Callable[[], float] = time.time) -> None:
        self._address, self._now = (address or ADDRESS).rstrip("/"), now

    @property
    def _api(self) -> str:
        """Where its interface for programs is: a host of its own, but on this machine."""
        parts = urlsplit(self._address)
        return self._address if is_here(self._address) else f"{parts.scheme}://api.{parts.netloc}"

    async def begin(self) -> Device:
        told = await ask(f"{self._address}/login/device/code", body={"client_id": _CLIENT, "scope": "read:user"})
        if told.status != 200:
            raise Rejected(f"no code was given: {told.words}", remedy="look at providers.github_copilot.auth_url")
        code, secret = told.text("user_code"), told.text("device_code")
        if not code or not secret:
            raise without("a code")
        return Device(code, self._shown(told.text("verification_uri")), told.seconds("interval", 5.0), told.seconds("expires_in", _LASTS_S), secret)

    def _shown(self, address: str) -> str:
        """Where the code is typed: on the very host that gave it."""
        same = urlsplit(address)[:2] == urlsplit(self._address)[:2]
        return address if same and address.isprintable() else f"{self._address}/login/device"

    async def look(self, device: Device) -> Login | float:
        body = {"client_id": _CLIENT, "device_code": device.secret, "grant_type": _GRANT}
        told = await ask(f"{self._address}/login/oauth/access_token", body=body)
        if token := told.text("access_token"):
            login = Login(self._now(), token, account=await self._account(token))
            return await self.renew(login)  # one who may not use Copilot is not signed in to it
        if told.code == "authorization_pending":
            return max(device.interval_s, told.seconds("interval", 0.0))
        if told.code == "slow_down":
            return max(device.interval_s + _SLOWER_S, told.seconds("interval", 0.0))
        raise NotAuthorized(_OVER.get(told.code, f"the login failed: {told.words}"), remedy=remedy(_NAME))

    async def renew(self, login: Login) -> Login:
        told = await ask(f"{self._api}/copilot_internal/v2/token", headers={"Authorization": f"token {login.refresh}", **EDITOR})
        if told.status == 401:
            raise NotAuthorized(f"the login is not good any more: {told.words}", remedy=remedy(_NAME))
        if told.status != 200:
            raise NotAuthorized(f"this account may not use Copilot: {told.words}", remedy="look at github.com/settings/copilot")
        if not told.text("token"):
            raise without("a token")
        return self._taken(told, login)

    async def revoke(self, login: Login) -> bool:
        return False

    def _taken(self, told: Told, login: Login) -> Login:
        """GitHub says both when a token ends and in how long it is to be made new: the latter holds whatever this machine's clock says."""
        now = self._now()
        lives = told.seconds("refresh_in", 0.0) or max(60.0, told.seconds("expires_at", now) - now)
        endpoints = told.body.get("endpoints")
        api = str(endpoints.get("api") or "") if isinstance(endpoints, dict) else ""
        made = replace(login, access=told.text("token"), made_at=now, expires_at=now + lives)
        return replace(made, api=self._believed(api), plan=told.text("sku") or login.plan)

    def _believed(self, api: str) -> str:
        """An address that tokens may be sent to: Copilot's, or the authority's own machine where that is this one."""
        parts = urlsplit(api)
        host = parts.hostname or ""
        owner = urlsplit(self._address).hostname or ""
        known = host.endswith((".githubcopilot.com", f".{owner}")) or host == "api.githubcopilot.com"
        if (parts.scheme == "https" and known and not parts.username) or (is_here(api) and is_here(self._address)):
            return api.rstrip("/")
        return ""

    async def _account(self, token: str) -> str:
        told = await ask(f"{self._api}/user", headers={"Authorization": f"token {token}"})
        return told.text("login")
