"""`bubbles provider`: signing in by a code and by a browser, how it stands, signing out; and that nothing is kept of what did not come to its end."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bubbles.errors import NotAuthorized, Rejected, TryAgain
from bubbles.paths import Home
from bubbles.programs.signing.browser import listening
from bubbles.programs.signing.device import by_code
from bubbles.providers import tokens
from bubbles.providers.codex_login import Codex, code_in
from bubbles.providers.copilot_login import Copilot
from bubbles.providers.issuer import Device
from bubbles.providers.tokens import Login
from tests.fakes.start import FakeModel, vendor
from tests.fakes.vendors.authority import CODE
from tests.programs.run import BIN, bubbles

CODEX, COPILOT = "openai-codex", "github-copilot"
each = pytest.mark.parametrize("name", [CODEX, COPILOT])


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeModel]]:
    with vendor("codex") as codex, vendor("copilot") as copilot:
        yield {CODEX: codex, COPILOT: copilot}


@pytest.fixture
def set_up(home: Home, servers: dict[str, FakeModel]) -> Home:
    sections = {name.replace("-", "_"): {"base_url": fake.url, "auth_url": root(fake)} for name, fake in servers.items()}
    home.config.write_text(json.dumps({"version": 1, "providers": sections}))
    home.config.chmod(0o600)
    return home


def root(server: FakeModel) -> str:
    return "{0.scheme}://{0.netloc}".format(urlsplit(server.url))


def play(server: FakeModel, **login: Any) -> None:
    server.play({"login": {"interval": 0.1, **login}})


def told(server: FakeModel) -> dict[str, Any]:
    found: dict[str, Any] = server._call("GET", "/_authority")
    return found


def kept(home: Home) -> list[str]:
    return sorted(path.name for path in home.tokens.iterdir() if path.suffix != ".lock") if home.tokens.exists() else []


def standing(name: str = "") -> tuple[int, list[dict[str, Any]]]:
    done = bubbles("provider", "status", "--json", *filter(None, [name]))
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@each
def test_in_how_it_stands_and_out(set_up: Home, servers: dict[str, FakeModel], name: str) -> None:
    play(servers[name], pending=2, account="octocat")
    done = bubbles("provider", "login", name.replace("-", "_").upper())
    assert (done.returncode, done.stderr) == (0, "")
    assert CODE in done.stdout
    assert root(servers[name]) in done.stdout
    path = tokens.path(set_up, name.replace("-", "_"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    held = json.loads(path.read_text())
    code, (found,) = standing(name)
    account = {CODEX: "me@example.org", COPILOT: "octocat"}[name]
    assert (code, found["signed_in"], found["account"]) == (0, True, account)
    assert found["expires"] > time.time() >= found["since"]
    shown = bubbles("provider", "status").stdout
    for secret in (held["refresh"], held["access"]):
        assert secret not in str(found) + shown + done.stdout
    assert account in shown
    done = bubbles("provider", "logout", name)
    assert (done.returncode, kept(set_up)) == (0, [])
    assert told(servers[name])["revoked"] == ([held["refresh"]] if name == CODEX else [])
    assert ("github.com" in done.stderr) == (name == COPILOT)
    assert standing(name)[0] == 1
    assert bubbles("provider", "logout", name).returncode == 1


@each
@pytest.mark.parametrize(("says", "exit"), [("access_denied", 78)])
def test_a_login_that_is_refused_leaves_nothing(set_up: Home, servers: dict[str, FakeModel], name: str, says: str, exit: int) -> None:
    play(servers[name], says=says)
    done = bubbles("provider", "login", name)
    assert (done.returncode, kept(set_up)) == (exit, [])
    assert "refused" in done.stderr


def test_who_may_not_use_copilot_is_not_signed_in(set_up: Home, servers: dict[str, FakeModel]) -> None:
    play(servers[COPILOT], refuses=403)
    done = bubbles("provider", "login", COPILOT)
    assert (done.returncode, kept(set_up)) == (78, [])
    assert "No access to GitHub Copilot" in done.stderr


@each
def test_ctrl_c_leaves_nothing(set_up: Home, servers: dict[str, FakeModel], name: str) -> None:
    play(servers[name], pending=10_000)
    with subprocess.Popen([BIN / "bubbles", "provider", "login", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while "Waiting" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, kept(set_up)) == (130, [])
    assert "Traceback" not in said


def test_no_connection_is_one_to_try_again(set_up: Home) -> None:
    config = json.loads(set_up.config.read_text())
    config["providers"]["github_copilot"]["auth_url"] = "http://127.0.0.1:1"
    set_up.config.write_text(json.dumps(config))
    assert bubbles("provider", "login", COPILOT).returncode == 75


@pytest.mark.parametrize("argv", [("login", "anthropic"), ("login", "nobody"), ("login",), ("status", "x"), ("login", COPILOT, "--browser")])
def test_a_wrong_call(set_up: Home, argv: tuple[str, ...]) -> None:
    assert bubbles("provider", *argv).returncode == 64


def test_a_file_that_is_none_is_told_and_may_be_taken_away(set_up: Home) -> None:
    tokens.write(tokens.path(set_up, "openai_codex"), Login(1.0, "r"))
    tokens.path(set_up, "openai_codex").write_text("{")
    code, (found,) = standing(CODEX)
    assert (code, found["signed_in"], found["remedy"]) == (1, False, "bubbles provider login openai-codex")
    assert bubbles("provider", "logout", CODEX).returncode == 0
    assert kept(set_up) == []


# -- by a code, step by step ---------------------------------------------------------------------------


class Time:
    """A clock whose pauses take no time."""

    def __init__(self) -> None:
        self.at, self.slept = 0.0, list[float]()

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


def coded(server: FakeModel, cls: Any, **login: Any) -> tuple[Any, Time, list[Device]]:
    server.play({"login": {"interval": 5, **login}})
    clock, shown = Time(), list[Device]()
    try:
        return asyncio.run(by_code(cls(root(server)), shown.append, clock.now, clock.sleep)), clock, shown
    except (NotAuthorized, TryAgain) as error:
        return error, clock, shown


def test_it_is_looked_at_no_more_often_than_is_wanted(servers: dict[str, FakeModel]) -> None:
    found, clock, shown = coded(servers[COPILOT], Copilot, slow=1, pending=2)
    assert isinstance(found, Login)
    assert clock.slept == [5.0, 10.0, 5.0, 5.0]
    assert [device.code for device in shown] == [CODE]
    found, clock, _ = coded(servers[CODEX], Codex, pending=3)
    assert clock.slept == [5.0] * 4


@pytest.mark.parametrize(("says", "said"), [("expired_token", "expired"), ("access_denied", "refused"), ("unsupported_grant_type", "failed")])
def test_the_ends_of_a_code(servers: dict[str, FakeModel], says: str, said: str) -> None:
    found, _, _ = coded(servers[COPILOT], Copilot, says=says)
    assert isinstance(found, NotAuthorized)
    assert said in found.text


def test_a_code_that_nobody_types_ends_with_its_time(servers: dict[str, FakeModel]) -> None:
    for name, cls in ((CODEX, Codex), (COPILOT, Copilot)):
        found, clock, _ = coded(servers[name], cls, pending=10_000)
        assert isinstance(found, TryAgain)
        assert 890 <= clock.at <= 910


def test_the_code_is_typed_nowhere_but_at_its_host() -> None:
    for address in ("https://evil.example/login/device", "javascript:x", "https://github.com@evil.example/", "", "http://github.com/login/device"):
        assert Copilot()._shown(address) == "https://github.com/login/device"
    assert Copilot()._shown("https://github.com/login/device") == "https://github.com/login/device"


# -- by a browser --------------------------------------------------------------------------------------


def visited(address: str) -> str:
    """Where a browser is sent when its person says yes."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return str(answer.headers["location"])


def test_the_address_is_pasted(set_up: Home, servers: dict[str, FakeModel]) -> None:
    play(servers[CODEX])
    argv = [BIN / "bubbles", "provider", "login", CODEX, "--browser"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        assert process.stderr
        while not (address := process.stdout.readline().strip()).startswith("http"):
            pass
        back = visited(address)
        code = parse_qs(urlsplit(back).query)["code"][0]
        for wrong in (code, "nonsense", f"http://localhost:1455/auth/callback?code={code}&state=another"):
            process.stdin.write(wrong + "\n")
            process.stdin.flush()
            assert "not the answer to this login" in process.stderr.readline()
            process.stderr.readline()
        out, _ = process.communicate(back + "\n", timeout=60)
    assert process.returncode == 0
    assert "Signed in" in out
    assert kept(set_up) == ["openai_codex.json"]


def test_a_refusal_in_the_browser(set_up: Home, servers: dict[str, FakeModel]) -> None:
    play(servers[CODEX], says="access_denied")
    argv = [BIN / "bubbles", "provider", "login", CODEX, "--browser"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while not (address := process.stdout.readline().strip()).startswith("http"):
            pass
        _, said = process.communicate(visited(address) + "\n", timeout=60)
    assert (process.returncode, kept(set_up)) == (78, [])
    assert "access_denied" in said


def asked(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        data = b""
        while block := connection.recv(4096):
            data += block
    return data


def test_the_way_back_takes_the_answer_to_this_login_and_no_other() -> None:
    browser = Codex().browser()

    async def served() -> tuple[list[bytes], str]:
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with listening(browser, answered, 0) as ports:
            wrong = [
                b"GET / HTTP/1.1\r\n\r\n",
                b"POST /auth/callback HTTP/1.1\r\n\r\n",
                b"GET /auth/callback?code=c&state=x HTTP/1.1\r\n\r\n",
                b"\r\n\r\n",
            ]
            found = [await asyncio.to_thread(asked, ports[0], request) for request in wrong]
            assert not answered.done()
            right = f"GET /auth/callback?code=c&state={browser.state} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            found.append(await asyncio.to_thread(asked, ports[0], right))
            return found, await answered

    pages, address = asyncio.run(served())
    assert [page.split(b" ")[1] for page in pages] == [b"404", b"404", b"400", b"404", b"200"]
    assert code_in(address, browser.state) == "c"
    assert browser.state.encode() not in b"".join(pages)


def test_what_a_browser_brings_is_held_against_its_login() -> None:
    for address in ("", "code", "http://[", "http://localhost:1455/auth/callback?code=c", "?state=&code=c"):
        with pytest.raises(Rejected):
            code_in(address, "the-state")
    with pytest.raises(NotAuthorized, match="no"):
        code_in("?state=the-state&error=no", "the-state")
    one, other = Codex().browser(), Codex().browser()
    assert one.state != other.state
    assert one.verifier not in one.address + repr(one)
    assert re.search(r"code_challenge_method=S256", one.address)


# -- at onboarding -------------------------------------------------------------------------------------


@each
def test_it_is_set_up_by_choice_once_somebody_is_signed_in(set_up: Home, servers: dict[str, FakeModel], name: str) -> None:
    play(servers[name])
    argv = ("onboard", "--yes", "--provider", name.replace("-", "_"), "--sandbox", "local")
    refused = bubbles(*argv, "--model", "gpt-5")
    assert refused.returncode == 64
    assert f"bubbles provider login {name}" in refused.stderr
    assert bubbles("provider", "login", name).returncode == 0
    assert bubbles(*argv).returncode == 64, "which model?"
    done = bubbles(*argv, "--model", "gpt-5")
    assert (done.returncode, "It answers: ok" in done.stdout) == (0, True), done.stderr
    defaults = json.loads(set_up.config.read_text())["agents"]["defaults"]
    assert (defaults["model"], defaults["provider"]) == ("gpt-5", name.replace("-", "_"))
    route = json.loads(bubbles("models", "route", "--json").stdout)
    assert (route["provider"], route["set_up"]) == (name.replace("-", "_"), True)
    assert bubbles("models", "test").returncode == 0
