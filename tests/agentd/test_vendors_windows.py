"""A window that a vendor says is too small, in the words of each vendor and end to end: one summary, and the question once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bubbles.paths import Home
from tests.agentd.world import World, world
from tests.fakes.start import FakeModel, vendor
from tests.providers.conformance.sides import KEY, SIDES, Side

# One of each way in which bytes are read; those that are signed in to have no key to be set up by.
SAID = {str(side): side for side in SIDES if str(side) in ("anthropic", "openai", "gemini", "deepseek", "zhipu", "custom", "ollama")}
SUMMARY = {"when": "about to be replaced", "reply": "## Goal\nThey counted.\n\n## Next\nGo on counting."}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeModel]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(vendor(name)) for name in sorted({side.server for side in SAID.values()})}


def _set_up(there: World, servers: dict[str, FakeModel], side: Side) -> None:
    there.configure(
        **{
            f"providers__{side.provider}__base_url": servers[side.server].url + side.root,
            f"providers__{side.provider}__api_key": KEY,
            "agents__defaults__provider": side.provider,
            "agents__defaults__model": side.model,
        }
    )


@pytest.mark.parametrize("name", SAID)
def test_too_long_in_a_vendors_words_is_one_summary_and_one_question_more(home: Home, servers: dict[str, FakeModel], name: str) -> None:
    side = SAID[name]
    server = servers[side.server]
    script = {"key": KEY, "vendor": side.vendor, "rules": [SUMMARY]}
    server.play(script)
    with world(home, {}, agents__defaults__keep_tokens=400, agents__defaults__result_tokens=200) as there:
        _set_up(there, servers, side)
        there.start()
        for n in range(4):
            assert there.say(f"count {n} " + "word " * 300).outcome == "replied"
        server.play({**script, "rules": [{"when": "and now?", "fault": "too_long", "times": 1}, SUMMARY]})
        heard = there.say("and now?")
        assert (heard.outcome, server.seen()["requests"]) == ("replied", 3)
        assert "They counted." in (home.session("s") / "session.jsonl").read_text()
        assert sum("count" in str(line["content"]) for line in there.history() if line["role"] == "user") == 4
        server.play({**script, "rules": [{"fault": "too_long"}]})
        again = there.say("and then?")
        assert again.outcome == "failed:context_too_long"
        assert server.seen()["requests"] <= 6
        server.play(script)
        assert there.say("better?").outcome == "replied"
