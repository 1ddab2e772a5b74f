"""The two that one signs in to, against servers that speak their protocols: what goes out, a token that is no good any more, what is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from bubbles import log
from bubbles.config import load
from bubbles.errors import ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from bubbles.paths import Home
from bubbles.providers import open, tokens
from bubbles.providers.provider import Answer, Ask, Provider
from bubbles.providers.tokens import Login
from tests.fakes.start import FakeModel, vendor

SERVERS = {"openai_codex": "codex", "github_copilot": "copilot"}
HI = b'{"role":"user","content":"hi"}'
DONE = [b'{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"exec","arguments":"{}"}}]}']
DONE += [b'{"role":"tool","tool_call_id":"c","content":"done"}']
TOOLS = b'[{"type":"function","function":{"name":"exec","description":"","parameters":{"type":"object","properties":{}}}}]'

each = pytest.mark.parametrize("name", list(SERVERS))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeModel]]:
    with vendor("codex") as codex, vendor("copilot") as copilot:
        yield {"openai_codex": codex, "github_copilot": copilot}


def told(server: FakeModel) -> dict[str, Any]:
    """What the authority beside a server saw."""
    found: dict[str, Any] = server._call("GET", "/_authority")
    return found


class Place:
    """A home that is signed in to one of them, with a token that is good for an hour unless another is given."""

    def __init__(self, home: Home, name: str, server: FakeModel, **section: Any) -> None:
        self.home, self.name, self.server = home, name, server
        parts = urlsplit(server.url)
        found = {"base_url": server.url, "auth_url": f"{parts.scheme}://{parts.netloc}", **section}
        home.config.write_text(json.dumps({"version": 1, "providers": {name: found}}))
        home.config.chmod(0o600)

    def sign_in(self, access: str = "first-token", *, lives_s: float = 3600.0, refresh: str = "refresh-0-of-somebody") -> None:
        now = time.time()
        login = Login(now, refresh, access, made_at=now - 10, expires_at=now + lives_s, account_id="acc-1")
        tokens.write(tokens.path(self.home, self.name), login)

    def run(self, *asks: Ask, work: Callable[[Provider], Any] | None = None) -> Any:
        async def once() -> Any:
            provider = open(self.name, load(self.home, "providers").providers, self.home)
            try:
                if work:
                    return await work(provider)
                return [await self._asked(provider, ask) for ask in asks]
            finally:
                await provider.close()

        found = asyncio.run(once())
        return found if work or len(asks) > 1 else found[0]

    async def _asked(self, provider: Provider, ask: Ask) -> Answer | ModelError:
        try:
            return await provider.ask(ask, lambda text: None)
        except ModelError as error:
            return error

    def login(self) -> Login:
        found = tokens.read(tokens.path(self.home, self.name), self.name)
        assert found
        return found


@pytest.fixture
def place(home: Home, servers: dict[str, FakeModel], name: str) -> Place:
    made = Place(home, name, servers[name])
    made.sign_in()
    return made


def ask(*messages: bytes, model: str = "gpt-5", tools: bytes = b"") -> Ask:
    return Ask("t.1", model, messages or [HI], tools, timeout_s=20.0)


@each
def test_nobody_is_signed_in(home: Home, servers: dict[str, FakeModel], name: str) -> None:
    servers[name].play({})
    error = Place(home, name, servers[name]).run(ask())
    assert type(error) is NotAuthorized
    assert error.remedy == f"bubbles provider login {name.replace('_', '-')}"
    assert servers[name].seen()["requests"] == 0


@each
def test_one_request_with_a_good_token(place: Place) -> None:
    place.server.play({"key": "first-token"})
    assert place.run(ask()).text == "ok"
    assert (place.server.seen()["requests"], told(place.server)["renewals"]) == (1, 0)


@each
def test_a_token_that_is_over_is_made_new_first(place: Place) -> None:
    place.server.play({"login": {"strict": True}})
    place.sign_in(lives_s=-10)
    assert place.run(ask()).text == "ok"
    assert (place.server.seen()["requests"], told(place.server)["renewals"]) == (1, 1)
    assert place.login().refresh == told(place.server)["refresh"]
    assert place.login().expires_at > time.time()


@each
def test_one_that_is_refused_in_use_is_made_new_and_the_request_made_once_more(place: Place) -> None:
    place.server.play({"login": {"strict": True}})
    assert place.run(ask()).text == "ok"
    assert (place.server.seen()["requests"], told(place.server)["renewals"]) == (2, 1)


@each
def test_one_that_is_refused_again_is_not_asked_a_third_time(place: Place) -> None:
    place.server.play({"default": {"status": 401, "body": {"error": {"message": "no", "code": "token_expired"}}}})
    error = place.run(ask())
    assert type(error) is NotAuthorized
    assert error.remedy.startswith("bubbles provider login")
    assert (place.server.seen()["requests"], told(place.server)["renewals"]) == (2, 1)


@each
def test_a_login_that_was_ended_is_told_and_kept(place: Place) -> None:
    place.server.play({"login": {"refuses": True}})
    place.sign_in(lives_s=-10)
    before = place.login()
    error = place.run(ask())
    assert type(error) is NotAuthorized
    assert error.remedy.startswith("bubbles provider login")
    assert (place.server.seen()["requests"], place.login()) == (0, before)


@each
def test_an_authority_in_trouble_is_one_to_try_again(place: Place) -> None:
    place.server.play({"login": {"busy": 1}})
    place.sign_in(lives_s=-10)
    first, second = place.run(ask(), ask())
    assert type(first) is ModelDown
    assert second.text == "ok"


@each
def test_no_connection_to_the_authority(home: Home, servers: dict[str, FakeModel], name: str) -> None:
    place = Place(home, name, servers[name], auth_url="http://127.0.0.1:1")
    place.sign_in(lives_s=-10)
    assert type(place.run(ask())) is ModelDown


@each
def test_twenty_asks_at_once_renew_once(place: Place) -> None:
    place.server.play({"login": {"strict": True}})

    async def many(provider: Provider) -> list[Answer]:
        return list(await asyncio.gather(*(provider.ask(ask(), None) for _ in range(20))))

    assert [answer.text for answer in place.run(work=many)] == ["ok"] * 20
    assert told(place.server)["renewals"] == 1


@each
def test_the_models_are_those_that_it_lists(place: Place) -> None:
    place.server.play({"models": ["gpt-5", "gpt-5-mini"]})

    async def listed(provider: Provider) -> Any:
        await provider.learn("gpt-5")
        return await provider.models(), provider.capabilities("gpt-5")["window_tokens"], provider.state()

    models, window, state = place.run(work=listed)
    assert (models, window, state["signed_in"]) == (["gpt-5", "gpt-5-mini"], {"codex": 272000, "copilot": 111000}[SERVERS[place.name]], True)
    assert "token" not in str(state)


@each
def test_a_token_that_comes_back_is_struck_from_what_is_shown(place: Place) -> None:
    place.sign_in("a-token-that-comes-back")
    place.server.play({"default": {"status": 400, "body": {"error": {"message": "bad a-token-that-comes-back"}}}})
    error = place.run(ask())
    assert "comes-back" in error.text
    assert "comes-back" not in log.struck(error.text)


# -- Codex ---------------------------------------------------------------------------------------------

codex = pytest.mark.parametrize("name", ["openai_codex"])


@codex
def test_codex_is_asked_as_its_own_client_asks(place: Place) -> None:
    place.server.play({})
    system, late = b'{"role":"system","content":"Be brief."}', b'{"role":"system","content":"And kind."}'
    place.run(ask(system, late, HI, *DONE, tools=TOOLS))
    (body,), (headers,) = place.server.seen()["bodies"], place.server.seen()["headers"]
    assert (body["instructions"], body["store"], body["stream"], body["include"]) == (
        "Be brief.\n\nAnd kind.",
        False,
        True,
        ["reasoning.encrypted_content"],
    )
    assert [item["type"] for item in body["input"]] == ["message", "function_call", "function_call_output"]
    assert (headers["authorization"], headers["chatgpt-account-id"]) == ("Bearer first-token", "acc-1")
    assert headers["session_id"] == body["prompt_cache_key"]


@codex
def test_a_conversation_is_known_again_and_others_are_not(place: Place) -> None:
    place.server.play({})
    place.run(ask(HI), ask(HI, *DONE), ask(b'{"role":"user","content":"ho"}'))
    keys = [body["prompt_cache_key"] for body in place.server.seen()["bodies"]]
    assert len(set(keys)) == 2 + (keys[0] != keys[1])


@codex
@pytest.mark.parametrize("how", [{"resets_in_seconds": 7200}, {"resets_at": 7200}])
def test_an_allowance_that_is_used_up_says_when_it_comes_back(place: Place, how: dict[str, int]) -> None:
    how = {name: value + (int(time.time()) if name == "resets_at" else 0) for name, value in how.items()}
    error = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus", **how}
    place.server.play({"default": {"status": 429, "body": {"error": error}}})
    found = place.run(ask())
    assert type(found) is RateLimited
    assert 7100 < found.retry_after_s < 7300
    assert "free again at 20" in found.text


@codex
def test_a_subscription_without_it_is_one_without_credit(place: Place) -> None:
    place.server.play({"default": {"status": 429, "body": {"error": {"type": "usage_not_included", "message": "no"}}}})
    found = place.run(ask())
    assert type(found) is NotAuthorized
    assert found.no_credit


@codex
def test_a_parameter_that_it_does_not_take_is_left_out(place: Place) -> None:
    refused = {"status": 400, "body": {"detail": "Unsupported parameter: prompt_cache_key"}, "times": 1}
    place.server.play({"rules": [refused]})
    first, second = place.run(ask(), ask())
    assert type(first) is ModelDown
    assert second.text == "ok"
    assert "prompt_cache_key" not in place.server.seen()["bodies"][-1]


@codex
def test_thoughts_that_it_does_not_know_again_are_not_sent_again(place: Place) -> None:
    rules = [{"when": "hi", "calls": [{"name": "exec", "arguments": {}, "id": "c"}], "reasoning": "hm", "times": 1}]
    rules.append({"status": 400, "body": {"error": {"message": "The encrypted content for item rs_1 could not be verified."}}, "times": 1})
    place.server.play({"rules": rules})
    first, second, third = place.run(ask(tools=TOOLS), ask(HI, *DONE, tools=TOOLS), ask(HI, *DONE, tools=TOOLS))
    assert first.calls
    assert type(second) is ModelDown
    assert third.text == "ok"
    kinds = [[item["type"] for item in body["input"]] for body in place.server.seen()["bodies"]]
    assert ["reasoning" in each for each in kinds] == [False, True, False]


# -- Copilot -------------------------------------------------------------------------------------------

copilot = pytest.mark.parametrize("name", ["github_copilot"])


@copilot
@pytest.mark.parametrize(("messages", "who"), [([HI], "user"), ([HI, *DONE], "agent"), ([HI, *DONE, HI], "user")])
def test_copilot_is_told_who_began(place: Place, messages: list[bytes], who: str) -> None:
    place.server.play({})
    assert place.run(ask(*messages, tools=TOOLS)).text == "ok"
    (headers,) = place.server.seen()["headers"]
    assert headers["x-initiator"] == who
    assert headers["copilot-integration-id"]
    assert "copilot-vision-request" not in headers


@copilot
def test_copilot_is_told_of_images_and_not_of_words_about_them(place: Place) -> None:
    place.server.play({})
    image = b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}'
    assert place.run(ask(image)).text == "ok"
    assert place.server.seen()["headers"][0]["copilot-vision-request"] == "true"
    words = json.dumps({"role": "user", "content": 'what is {"image_url": 1}?'}, separators=(",", ":")).encode()
    place.run(ask(words))
    assert "copilot-vision-request" not in place.server.seen()["headers"][1]


@copilot
def test_a_model_of_the_responses_alone_is_found_out(place: Place) -> None:
    place.server.play({"models": [{"id": "gpt-6", "supported_endpoints": ["/responses"]}], "default": {"reply": "words"}})
    first, second = place.run(ask(model="gpt-6"), ask(model="gpt-6"))
    assert type(first) is ModelDown
    assert second.text == "words"

    async def learned(provider: Provider) -> Answer:
        await provider.learn("gpt-6")
        return await provider.ask(ask(model="gpt-6"), None)

    assert place.run(work=learned).text == "words"


@copilot
def test_sealed_thoughts_go_back(place: Place) -> None:
    rules = [{"when": "hi", "calls": [{"name": "exec", "arguments": {}, "id": "c"}], "reasoning": "hm", "times": 1}]
    place.server.play({"rules": rules})
    first, _ = place.run(ask(tools=TOOLS), ask(HI, *DONE, tools=TOOLS))
    assert first.reasoning == "hm"
    said = place.server.seen()["raw"][1]
    assert '"reasoning_opaque"' in said
    assert '"reasoning_text":"hm"' in said


@copilot
def test_an_answer_spread_over_choices_is_one(place: Place) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "exec", "arguments": "{}"}}
    choices = [{"index": 0, "message": {"role": "assistant", "content": "I look."}, "finish_reason": "stop"}]
    choices.append({"index": 1, "message": {"role": "assistant", "content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"})
    place.server.play({"default": {"body": {"model": "claude", "choices": choices}}})
    answer = place.run(ask(tools=TOOLS))
    assert (answer.text, [each["name"] for each in answer.calls], answer.stop) == ("I look.", ["exec"], "tool_calls")


@copilot
def test_an_account_without_copilot_is_told_so(place: Place) -> None:
    place.server.play({"login": {"refuses": 403}})
    place.sign_in(lives_s=-10)
    error = place.run(ask())
    assert type(error) is NotAuthorized
    assert "No access to GitHub Copilot" in error.text


@copilot
@pytest.mark.parametrize(
    "api",
    [
        "https://evil.example/x",
        "http://api.githubcopilot.com",
        "https://api.githubcopilot.com.evil.example",
        "https://u@a.githubcopilot.com",
        "",
        "x",
    ],
)
def test_a_token_goes_to_no_strange_address(api: str, name: str) -> None:
    from bubbles.providers.copilot_login import Copilot

    assert Copilot()._believed(api) == ""
    assert Copilot()._believed("https://api.individual.githubcopilot.com/") == "https://api.individual.githubcopilot.com"


@copilot
def test_a_model_that_is_not_there_is_rejected(place: Place) -> None:
    place.server.play({"default": {"fault": "no_model"}})
    assert type(place.run(ask())) is Rejected
