"""The servers of all vendors, started once, and the halls where providers are asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bubbles.paths import Home
from tests.fakes.start import FakeModel, vendor
from tests.providers.conformance.hall import Hall
from tests.providers.conformance.sides import SIDES, Side


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "conformance" in item.nodeid:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"))  # pydantic's, about LiteLLM


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, FakeModel]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(vendor(name)) for name in sorted({side.server for side in SIDES})}


def _hall(path: Path, servers: dict[str, FakeModel], **defaults: object) -> Iterator[Hall]:
    home = Home(path)
    home.prepare()
    made = Hall(home, servers, **defaults)
    yield made
    made.close()


@pytest.fixture(scope="session")
def hall(tmp_path_factory: pytest.TempPathFactory, servers: dict[str, FakeModel]) -> Iterator[Hall]:
    """Two retries, as the settings have it where the owner says nothing."""
    yield from _hall(tmp_path_factory.mktemp("hall"), servers)


@pytest.fixture(scope="session")
def once_more(tmp_path_factory: pytest.TempPathFactory, servers: dict[str, FakeModel]) -> Iterator[Hall]:
    """One retry, and the usual time-out."""
    yield from _hall(tmp_path_factory.mktemp("once"), servers, api_retries=1)


@pytest.fixture(scope="session")
def hasty(tmp_path_factory: pytest.TempPathFactory, servers: dict[str, FakeModel]) -> Iterator[Hall]:
    """One retry, and a time-out that ends a test soon."""
    yield from _hall(tmp_path_factory.mktemp("hasty"), servers, api_retries=1, api_timeout_s=0.8)


@pytest.fixture(scope="session")
def restless(tmp_path_factory: pytest.TempPathFactory, servers: dict[str, FakeModel]) -> Iterator[Hall]:
    """One retry, the usual time-out, and little patience with a stream that stands still."""
    yield from _hall(tmp_path_factory.mktemp("restless"), servers, api_retries=1, api_idle_s=0.5)


class _Nobody(FakeModel):
    def play(self, script: dict[str, object]) -> None:
        """Nothing is played where nobody is."""


@pytest.fixture(scope="session")
def deserted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    """Two retries, and nobody at any address: the port is held and not listened at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        nobody = _Nobody(f"http://127.0.0.1:{held.getsockname()[1]}")
        yield from _hall(tmp_path_factory.mktemp("deserted"), {side.server: nobody for side in SIDES})


@pytest.fixture(params=SIDES, ids=str)
def side(request: pytest.FixtureRequest) -> Side:
    found: Side = request.param
    return found
