"""What a login leaves: private, whole whatever happens, made new once for all who wait, and never lost."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import log
from bubbles.errors import ModelDown, NotAuthorized
from bubbles.paths import Home
from bubbles.providers import tokens
from bubbles.providers.tokens import Login, Tokens

NAME = "github_copilot"
OLD = Login(1000.0, "refresh-1", "access-1", made_at=1000.0, expires_at=2000.0, account="me")


class Authority:
    """Makes tokens new, and counts."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.fails, self.count = fails, 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def renew(self, login: Login) -> Login:
        self.count += 1
        await self.gate.wait()
        if self.fails:
            raise self.fails
        return replace(login, refresh=f"{login.refresh}+", access=f"{login.access}+", made_at=2500.0, expires_at=5000.0)


def held(home: Home, authority: Authority, now: float, login: Login | None = OLD) -> Tokens:
    if login:
        tokens.write(tokens.path(home, NAME), login)
    return Tokens(home, NAME, authority.renew, lambda: now)


def kept(home: Home) -> Login:
    found = tokens.read(tokens.path(home, NAME), NAME)
    assert found
    return found


def test_it_is_its_owners_alone_whatever_the_umask(home: Home) -> None:
    before = os.umask(0)
    try:
        tokens.write(tokens.path(home, NAME), OLD)
        with tokens.locked(tokens.path(home, NAME)):
            pass
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in [home.tokens, *home.tokens.iterdir()]} == {
        "tokens": 0o700,
        f"{NAME}.json": 0o600,
        f"{NAME}.lock": 0o600,
    }
    assert kept(home) == OLD


def test_one_that_others_could_read_is_made_private(home: Home) -> None:
    tokens.write(tokens.path(home, NAME), OLD)
    tokens.path(home, NAME).chmod(0o644)
    assert kept(home) == OLD
    assert stat.S_IMODE(tokens.path(home, NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("now", [1500.0, 1899.0])
def test_a_good_one_is_used_as_it_is(home: Home, now: float) -> None:
    authority = Authority()
    assert asyncio.run(held(home, authority, now).fresh()) == OLD
    assert authority.count == 0


@pytest.mark.parametrize("now", [1901.0, 2500.0, 500.0], ids=["soon over", "over", "the clock went back"])
def test_one_that_is_due_is_made_new_and_on_the_disk_before_it_is_used(home: Home, now: float) -> None:
    found = asyncio.run(held(home, Authority(), now).fresh())
    assert (found.access, found.refresh) == ("access-1+", "refresh-1+")
    assert kept(home) == found


def test_one_renewal_serves_all_who_wait(home: Home) -> None:
    authority = Authority()

    async def many() -> list[Login]:
        one = held(home, authority, 2500.0)
        return await asyncio.gather(*(one.fresh() for _ in range(20)))

    assert len({found.access for found in asyncio.run(many())}) == 1
    assert authority.count == 1


def test_who_is_cancelled_does_not_take_the_renewal_along(home: Home) -> None:
    authority = Authority()

    async def cancelled() -> None:
        authority.gate.clear()
        one = held(home, authority, 2500.0)
        waiting = asyncio.create_task(one.fresh())
        while not authority.count:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        authority.gate.set()
        await one.close()

    asyncio.run(cancelled())
    assert kept(home).refresh == "refresh-1+"


def test_what_another_process_made_new_meanwhile_is_taken(home: Home) -> None:
    authority = Authority()

    async def late() -> Login:
        one = held(home, authority, 1500.0)
        await one.fresh()
        tokens.write(one.path, replace(OLD, refresh="refresh-2", access="access-2"))
        return await one.renewed(OLD)

    assert asyncio.run(late()).access == "access-2"
    assert authority.count == 0


_LOSER = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from bubbles.paths import Home
from bubbles.providers.tokens import Login, Tokens

async def renew(login):
    with open(sys.argv[2], "a") as file:
        file.write("x")
    await asyncio.sleep(0.05)
    return replace(login, refresh=login.refresh + "+", access=login.access + "+", made_at=2500.0, expires_at=5000.0)

print(asyncio.run(Tokens(Home(Path(sys.argv[1])), "github_copilot", renew, lambda: 2500.0).fresh()).access)
"""


def test_of_several_processes_one_renews(home: Home, tmp_path: Path) -> None:
    tokens.write(tokens.path(home, NAME), OLD)
    count = tmp_path / "count"
    argv = [sys.executable, "-c", _LOSER, str(home.root), str(count)]
    root = Path(tokens.__file__).parents[2]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(4)]
    assert {process.communicate(timeout=60)[0].strip() for process in running} == {"access-1+"}
    assert count.read_text() == "x"
    assert kept(home).refresh == "refresh-1+"


def test_without_a_connection_a_token_that_is_still_good_is_used(home: Home) -> None:
    one = held(home, Authority(fails=ModelDown("no connection")), 1950.0)
    assert asyncio.run(one.fresh()) == OLD
    with pytest.raises(ModelDown):
        asyncio.run(held(home, Authority(fails=ModelDown("no connection")), 2500.0).fresh())
    assert kept(home) == OLD


def test_a_refusal_leaves_the_file(home: Home) -> None:
    with pytest.raises(NotAuthorized):
        asyncio.run(held(home, Authority(fails=NotAuthorized("revoked")), 2500.0).fresh())
    assert kept(home) == OLD


def test_one_that_the_disk_will_not_have_is_not_lost(home: Home) -> None:
    """The provider has ended the old one: the new one is written at the next try, and the provider is not asked again."""
    authority = Authority()

    async def full() -> Login:
        one = held(home, authority, 2500.0)
        in_the_way = one.path.with_name(f"{one.path.name}.tmp")
        in_the_way.mkdir()
        with pytest.raises(ModelDown, match="cannot be kept"):
            await one.fresh()
        in_the_way.rmdir()
        return await one.fresh()

    assert asyncio.run(full()).refresh == "refresh-1+"
    assert authority.count == 1
    assert kept(home).refresh == "refresh-1+"


def test_logging_out_and_in_is_seen_at_once(home: Home) -> None:
    async def seen() -> None:
        one = held(home, Authority(), 1500.0)
        await one.fresh()
        tokens.remove(one.path)
        with pytest.raises(NotAuthorized, match="nobody is signed in") as caught:
            await one.fresh()
        assert caught.value.remedy == "bubbles provider login github-copilot"
        tokens.write(one.path, replace(OLD, access="access-9"))
        assert (await one.fresh()).access == "access-9"

    asyncio.run(seen())


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text('{"version": 1}'),
        lambda path: path.write_text('{"version": 1, "since": true, "refresh": "r"}'),
        lambda path: path.write_text('{"version": 1, "since": 1, "refresh": 7}'),
        lambda path: path.write_text('{"version": 99, "since": 1, "refresh": "r"}'),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: path.write_text(" " * (300 << 10)),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.rename(path.with_name("elsewhere")), path.symlink_to("elsewhere")),
    ],
)
def test_what_is_no_login_is_told_and_left_alone(home: Home, damage: Callable[[Path], Any]) -> None:
    one = held(home, Authority(), 1500.0)
    damage(one.path)
    before = one.path.lstat().st_ino
    with pytest.raises(NotAuthorized) as caught:
        asyncio.run(one.fresh())
    assert caught.value.remedy
    assert one.path.lstat().st_ino == before


def test_no_token_is_in_a_text_of_it_or_in_the_log(home: Home) -> None:
    login = Login(1.0, "refresh-secret-0123", "access-secret-4567")
    assert "secret" not in repr(login)
    tokens.write(tokens.path(home, NAME), login)
    kept(home)
    assert "secret" not in log.struck("it said refresh-secret-0123 and access-secret-4567")
    log.redact([], of=NAME)


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


@given(st.builds(Login, st.floats(0, 1e10), _TEXTS, _TEXTS, st.floats(0, 1e10), st.floats(0, 1e10), _TEXTS, _TEXTS, _TEXTS, _TEXTS))
def test_any_login_comes_back(tmp_path_factory: pytest.TempPathFactory, login: Login) -> None:
    path = tmp_path_factory.getbasetemp() / "any" / "any.json"
    tokens.write(path, login)
    assert json.loads(path.read_text())["version"] == 1
    assert tokens.read(path, "any") == login
    log.redact([], of="any")
