"""Who signs people in: OpenAI's authority as Codex's client meets it, and GitHub's as Copilot's does. A connection has it beside its models.

The script's `login` says how it goes: `interval` (seconds), `pending` (looks before the code was typed), `slow` (looks that came too soon), `says`
(the error that a look ends with, by its name), `lives_s` (of an access token), `account`, `refuses` (no renewal: true, or a status), `busy`
(renewals that get this many 503s first), `keeps` (the refresh token stays as it is), `strict` (only tokens that were handed out are good).
`GET /_authority` tells what was asked for. Renewals are of one client, which may be too late: a token that was used up already is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import Any
from urllib.parse import parse_qs, urlencode

from tests.fakes.script import Refusal
from tests.fakes.wire import Asked, Connection

OPENAI_CLIENT, GITHUB_CLIENT = "app_EMoamEEZ73f0CkXaXp7hrann", "Iv1.b507a08c87ecfe98"
BACK = "http://localhost:1455/auth/callback"
CODE = "ABCD-1234"


class Authority:
    """What one server remembers of its people. `said`: how its login goes."""

    def __init__(self, said: dict[str, Any], key: str) -> None:
        self.said, self.key = said, key
        self.asked: list[str] = []
        self.looks = self.renewals = self.count = 0
        self.codes: dict[str, tuple[str, str]] = {}  # by code: its challenge, and the way back
        self.refresh, self.access = "refresh-0-of-somebody", set[str]()
        self.used: list[str] = []
        self.revoked: list[str] = []
        self.busy = int(said.get("busy", 0))

    def told(self) -> dict[str, Any]:
        """For tests."""
        return {"asked": self.asked, "renewals": self.renewals, "refresh": self.refresh, "access": sorted(self.access), "revoked": self.revoked}

    def number(self) -> int:
        self.count += 1
        return self.count


class Signing(Connection):
    """A connection to a server that has an authority."""

    @property
    def authority(self) -> Authority:
        found: Authority = self.model.__dict__.setdefault("authority", Authority({}, ""))
        return found

    async def _control(self, asked: Asked) -> None:
        if asked.path == "/_script":
            self.model.__dict__["authority"] = Authority(asked.body.get("login") or {}, asked.body.get("key") or "")
        if asked.path == "/_authority":
            return self.whole(200, self.authority.told())
        return await super()._control(asked)

    def admitted(self, asked: Asked) -> bool:
        """Whether the request carries a token that was handed out."""
        authority = self.authority
        return not authority.said.get("strict") or asked.headers.get("authorization", "").removeprefix("Bearer ") in authority.access

    def handed_out(self, token: str) -> str:
        """An access token, or the one that the script wants to see."""
        found = self.authority.key or token
        self.authority.access = {found}
        return found

    def busy(self) -> None:
        """Raises Refusal while the server is in trouble."""
        authority = self.authority
        authority.renewals += 1
        if authority.busy > 0:
            authority.busy -= 1
            raise Refusal(503, {"error": {"message": "try later", "code": "unavailable"}})


class OpenAISigning(Signing):
    """OpenAI's."""

    async def sign(self, asked: Asked) -> bool:
        """Answer a request that is the authority's; False where it is none."""
        known = {
            ("GET", "/oauth/authorize"): self._authorize,
            ("POST", "/oauth/token"): self._token,
            ("POST", "/oauth/revoke"): self._revoke,
            ("POST", "/api/accounts/deviceauth/usercode"): self._usercode,
            ("POST", "/api/accounts/deviceauth/token"): self._device,
        }
        found = known.get((asked.method, asked.path))
        if found is None:
            return False
        self.authority.asked.append(asked.path)
        found(asked)
        return True

    def _authorize(self, asked: Asked) -> None:
        """The person says yes at once, and the browser is sent back."""
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        wanted = {"response_type": "code", "client_id": OPENAI_CLIENT, "redirect_uri": BACK, "code_challenge_method": "S256"}
        for name, value in wanted.items():
            if query.get(name) != value:
                raise Refusal(400, f"<title>{name}</title>")
        if not {"openid", "offline_access"} <= set(query.get("scope", "").split()) or len(query.get("state", "")) < 16:
            raise Refusal(400, "<title>scope, state</title>")
        code = f"code-{self.authority.number()}"
        self.authority.codes[code] = (query["code_challenge"], BACK)
        back = {"error": self.authority.said["says"]} if "says" in self.authority.said else {"code": code, "scope": query["scope"]}
        location = f"{BACK}?{urlencode({**back, 'state': query['state']})}"
        self.whole(302, {}, {"Location": location})

    def _usercode(self, asked: Asked) -> None:
        if (asked.body or {}).get("client_id") != OPENAI_CLIENT:
            raise Refusal(401, {"error": {"message": "unknown client", "code": "invalid_client"}})
        self.whole(200, {"device_auth_id": "device-1", "user_code": CODE, "interval": str(self.authority.said.get("interval", "5"))})

    def _device(self, asked: Asked) -> None:
        authority = self.authority
        if asked.body != {"device_auth_id": "device-1", "user_code": CODE}:
            raise Refusal(404, {"error": {"message": "not found", "code": "not_found"}})
        authority.looks += 1
        if authority.looks <= authority.said.get("pending", 0):
            raise Refusal(403, {"error": {"message": "pending", "code": "deviceauth_authorization_pending"}})
        if "says" in authority.said:
            raise Refusal(403, {"error": {"message": authority.said["says"], "code": authority.said["says"]}})
        verifier = "v" * 50
        code = f"code-{authority.number()}"
        authority.codes[code] = (_challenge(verifier), f"http://{asked.headers['host']}/deviceauth/callback")
        self.whole(200, {"authorization_code": code, "code_challenge": _challenge(verifier), "code_verifier": verifier})

    def _token(self, asked: Asked) -> None:
        authority = self.authority
        if asked.headers.get("content-type") == "application/json":
            return self._renew(asked.body)
        form = {name: values[0] for name, values in parse_qs(asked.raw).items()}
        challenge, back = authority.codes.pop(form.get("code", ""), ("", ""))
        right = form.get("redirect_uri") == back and form.get("client_id") == OPENAI_CLIENT and _challenge(form.get("code_verifier", "")) == challenge
        if form.get("grant_type") != "authorization_code" or not right:
            raise Refusal(400, {"error": "invalid_grant", "error_description": "the code is none"})
        return self._hand_out()

    def _renew(self, body: Any) -> None:
        authority = self.authority
        self.busy()
        if body.get("grant_type") != "refresh_token" or body.get("client_id") != OPENAI_CLIENT:
            raise Refusal(400, {"error": {"message": "malformed", "code": "invalid_request"}})
        given = body.get("refresh_token")
        if authority.said.get("refuses") or given in authority.revoked:
            raise Refusal(401, {"error": {"message": "Your session has ended.", "code": "refresh_token_invalidated"}})
        if given in authority.used:
            raise Refusal(401, {"error": {"message": "Your refresh token has already been used.", "code": "refresh_token_reused"}})
        if not authority.said.get("keeps"):
            authority.used.append(given)
        return self._hand_out()

    def _hand_out(self) -> None:
        authority, now = self.authority, int(time.time())
        number, lives = authority.number(), authority.said.get("lives_s", 864000)
        about = {"https://api.openai.com/auth": {"chatgpt_account_id": "acc-1", "chatgpt_plan_type": "plus"}}
        access = self.handed_out(_jwt({"iat": now, "exp": now + lives, "n": number, **about}))
        told = {"access_token": access, "id_token": _jwt({"email": "me@example.org", **about}), "token_type": "Bearer", "expires_in": lives}
        if not authority.said.get("keeps"):
            authority.refresh = f"refresh-{number}-of-somebody"
            told["refresh_token"] = authority.refresh
        self.whole(200, told)

    def _revoke(self, asked: Asked) -> None:
        if asked.body.get("client_id") != OPENAI_CLIENT:
            raise Refusal(401, {"error": "invalid_client"})
        self.authority.revoked.append(asked.body["token"])
        self.whole(200, {})


class GitHubSigning(Signing):
    """GitHub's, and the one of Copilot behind it."""

    async def sign(self, asked: Asked) -> bool:
        """Answer a request that is the authority's; False where it is none."""
        known = {
            ("POST", "/login/device/code"): self._code,
            ("POST", "/login/oauth/access_token"): self._look,
            ("GET", "/copilot_internal/v2/token"): self._token,
            ("GET", "/user"): self._user,
        }
        found = known.get((asked.method, asked.path))
        if found is None:
            return False
        self.authority.asked.append(asked.path)
        found(asked)
        return True

    def _code(self, asked: Asked) -> None:
        if asked.body != {"client_id": GITHUB_CLIENT, "scope": "read:user"} or asked.headers.get("accept") != "application/json":
            raise Refusal(404, {"error": "Not Found"})
        where = f"http://{asked.headers['host']}/login/device"
        lasts = {"expires_in": self.authority.said.get("lasts_s", 899), "interval": self.authority.said.get("interval", 5)}
        self.whole(200, {"device_code": "device-1", "user_code": CODE, "verification_uri": where, **lasts})

    def _look(self, asked: Asked) -> None:
        """As GitHub has it: each error with status 200."""
        authority, body = self.authority, asked.body
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        if body != {"client_id": GITHUB_CLIENT, "device_code": "device-1", "grant_type": grant}:
            return self.whole(200, {"error": "incorrect_device_code", "error_description": "The device_code provided is not valid."})
        authority.looks += 1
        if authority.looks <= authority.said.get("slow", 0):
            return self.whole(200, {"error": "slow_down", "error_description": "Too many requests.", "interval": authority.said.get("interval", 5)})
        if authority.looks <= authority.said.get("slow", 0) + authority.said.get("pending", 0):
            return self.whole(200, {"error": "authorization_pending", "error_description": "The authorization request is still pending."})
        if "says" in authority.said:
            return self.whole(200, {"error": authority.said["says"], "error_description": "It is over."})
        return self.whole(200, {"access_token": authority.refresh, "token_type": "bearer", "scope": "read:user"})

    def _user(self, asked: Asked) -> None:
        self._signed(asked)
        self.whole(200, {"login": self.authority.said.get("account", "octocat"), "id": 1})

    def _signed(self, asked: Asked) -> None:
        if asked.headers.get("authorization") != f"token {self.authority.refresh}" or "user-agent" not in asked.headers:
            raise Refusal(401, {"message": "Bad credentials", "documentation_url": "", "status": "401"})

    def _token(self, asked: Asked) -> None:
        authority, now = self.authority, int(time.time())
        self.busy()
        if authority.said.get("refuses") == 403:
            details = {"url": "", "message": "No access to GitHub Copilot found.", "title": "", "notification_id": "no_copilot_access"}
            raise Refusal(403, {"can_signup_for_limited": False, "error_details": details, "message": "Resource not accessible by integration"})
        if authority.said.get("refuses"):
            raise Refusal(401, {"message": "Bad credentials"})
        self._signed(asked)
        if "editor-version" not in asked.headers:
            raise Refusal(400, {"message": "bad request: missing Editor-Version header"})
        lives = authority.said.get("lives_s", 1800)
        token = self.handed_out(f"tid={authority.number()};exp={now + lives};sku=monthly_subscriber:8kp=1")
        about = {"chat_enabled": True, "sku": "monthly_subscriber", "endpoints": {"api": f"http://{asked.headers['host']}"}}
        self.whole(200, {"token": token, "expires_at": now + lives, "refresh_in": max(1, lives - 300), **about})


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _jwt(claims: dict[str, Any]) -> str:
    parts = [{"alg": "RS256", "typ": "JWT"}, claims]
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{head}.{body}.c2lnbmF0dXJlLW9mLXRoZS1mYWtl"
