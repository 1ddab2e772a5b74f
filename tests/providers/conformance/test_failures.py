"""What every provider does where its vendor fails: the right kind, exactly the promised number of requests, and nothing of it in an answer."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import pytest

from bubbles.errors import ContextTooLong, ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from tests.fakes.vendors import wordings
from tests.providers.conformance.hall import Hall, Told
from tests.providers.conformance.sides import KEY, SIDES, WIRES, Side

PARTIAL, WHOLE = "half of an answer that br", "all of it"

streams = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def failed(told: Told, kind: type[ModelError], requests: int) -> ModelError:
    """The error, of exactly this kind and after so many requests."""
    assert told.error is not None, told.answer
    assert type(told.error) is kind, told.error
    assert (told.requests, told.error.attempts, len(told.slept)) == (requests, requests, requests - 1)
    assert KEY not in told.error.text
    return told.error


def mended(hall: Hall, side: Side, rule: dict[str, Any], *, stream: bool = True, fails: int = 1) -> Told:
    """What comes of an ask that fails so often, then is answered: the answer, and nothing of what came before."""
    told = hall.ask(side, {"rules": [{**rule, "times": fails}], "default": {"reply": WHOLE}}, stream=stream)
    assert told.error is None, told.error
    assert (told.requests, told.answer["attempts"], len(told.slept)) == (fails + 1, fails + 1, fails)
    assert (told.answer["text"], told.answer["calls"], told.answer["reasoning"]) == (WHOLE, [], "")
    assert told.heard == WHOLE
    assert [part["retry"]["attempt"] for part in told.parts if "retry" in part] == list(range(2, fails + 2))
    return told


def whose(*beginnings: str) -> list[Any]:
    """Every side with each of these faults, and with its vendor's own that begin so."""
    found = []
    for side in SIDES:
        names = {name: None for beginning in beginnings for name in [beginning, *wordings.named(side.words, beginning)]}
        found += [pytest.param(side, name, id=f"{side}-{name}") for name in names if _is_told(side, name)]
    return found


def _is_told(side: Side, fault: str) -> bool:
    try:
        wordings.of(side.words, fault)
    except KeyError:
        return False
    return True


# -- what passes -----------------------------------------------------------------------------------------


def test_too_many_requests_are_tried_again_when_the_vendor_says(hall: Hall, side: Side) -> None:
    limited = {"fault": "limited", "headers": {"Retry-After": "7"}}
    told = hall.ask(side, {"default": limited})
    error = failed(told, RateLimited, 3)
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 7
    assert told.slept == [pytest.approx(7.35)] * 2
    assert mended(hall, side, limited, stream=False).slept == [pytest.approx(7.35)]


def test_a_date_is_waited_for(hall: Hall, side: Side) -> None:
    told = mended(hall, side, {"fault": "limited", "headers": {"Retry-After": formatdate(time.time() + 30, usegmt=True)}})
    assert 25 < told.slept[0] < 33


def test_one_that_wants_to_be_left_alone_for_long_is_not_asked_again(hall: Hall, side: Side) -> None:
    failed(hall.ask(side, {"default": {"fault": "limited", "headers": {"Retry-After": "3600"}}}), RateLimited, 1)


@pytest.mark.parametrize(("fault", "stream"), [("server", True), ("unavailable", False)])
def test_a_server_in_trouble_is_tried_again(hall: Hall, hasty: Hall, side: Side, fault: str, stream: bool) -> None:
    assert mended(hall, side, {"fault": fault}, stream=stream, fails=2).slept == [1.0, 2.0]
    failed(hasty.ask(side, {"default": {"fault": fault}}, stream=stream), ModelDown, 2)


@pytest.mark.parametrize(("side", "fault"), whose("overloaded"))
def test_an_overload_is_tried_again_however_it_is_told(hall: Hall, side: Side, fault: str) -> None:
    status, _ = wordings.of(side.words, fault)
    failed(hall.ask(side, {"default": {"fault": fault}}), RateLimited if status == 429 else ModelDown, 3)


@pytest.mark.parametrize("status", [408, 502])
def test_a_page_of_a_proxy_is_tried_again(once_more: Hall, side: Side, status: int) -> None:
    told = once_more.ask(side, {"default": {"status": status, "body": "<html><title>gateway trouble</title></html>"}})
    assert "gateway trouble" in failed(told, ModelDown, 2).text


@pytest.mark.parametrize("rule", [{"cut": 0}, {"reply": PARTIAL, "cut": 1}], ids=["before", "within"])
def test_an_answer_that_breaks_off_is_tried_again(hall: Hall, side: Side, rule: dict[str, Any]) -> None:
    failed(hall.ask(side, {"default": rule}, stream=False), ModelDown, 3)


@pytest.mark.parametrize(("how", "after"), [("cut", 1), ("cut", 4), ("ends", 0), ("ends", 4)])
def test_a_stream_that_breaks_off_is_tried_again(hall: Hall, side: Side, how: str, after: int) -> None:
    mended(hall, side, {"reply": PARTIAL, "chunks": 8, how: after})


def test_a_stream_that_breaks_off_within_a_call_is_tried_again(hall: Hall, side: Side) -> None:
    tools = b'[{"type":"function","function":{"name":"exec","description":"","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]'
    cut = {"anthropic": 5, "gemini": 1}.get(side.server, 2)  # Gemini streams a call in one piece
    rule = {"calls": [{"name": "exec", "arguments": {"a": f"rm -rf {what}"}} for what in ("this", "that")], "cut": cut}
    told = hall.ask(side, {"rules": [{**rule, "times": 1}], "default": {"reply": WHOLE}}, tools=tools)
    assert (told.requests, told.answer["text"], told.answer["calls"]) == (2, WHOLE, [])


@pytest.mark.parametrize("fault", ["server", "overloaded"])
def test_a_failure_in_a_stream_is_tried_again(hall: Hall, side: Side, fault: str) -> None:
    rule = {"reply": PARTIAL, "fault": fault, "after": 4}
    mended(hall, side, rule)


@pytest.mark.parametrize("side", WIRES, ids=str)
@streams
def test_a_connection_that_is_refused_is_tried_again(deserted: Hall, side: Side, stream: bool) -> None:
    told = deserted.put(side, stream=stream)
    assert isinstance(told.error, ModelDown)
    assert (told.error.attempts, told.slept) == (3, [1.0, 2.0])
    assert told.error.spent == {}, "nobody was asked"


@streams
def test_one_that_never_answers_is_tried_again(hasty: Hall, side: Side, stream: bool) -> None:
    told = hasty.ask(side, {"rules": [{"never": True, "times": 1}], "default": {"reply": WHOLE}}, stream=stream)
    assert (told.requests, told.answer["text"], told.answer["attempts"]) == (2, WHOLE, 2)


def test_a_stream_that_stalls_is_tried_again(hasty: Hall, side: Side) -> None:
    rule = {"reply": PARTIAL, "stall": 4, "times": 1}
    told = hasty.ask(side, {"rules": [rule], "default": {"reply": WHOLE}})
    assert (told.requests, told.answer["text"], told.heard) == (2, WHOLE, WHOLE)
    assert told.seen["open"] == 0


@pytest.mark.parametrize("side", WIRES, ids=str)
@pytest.mark.parametrize("alive", ["comment", "empty"])
def test_a_stream_that_stands_still_is_cut_whatever_keeps_it_open(restless: Hall, side: Side, alive: str) -> None:
    """What comes to keep a connection open and says nothing is no answer; and what was said before the cut is not in the next one."""
    rule = {"reply": PARTIAL, "chunks": 8, "stall": 6, "alive": alive, "times": 1}
    told = restless.ask(side, {"rules": [rule], "default": {"reply": WHOLE}})
    assert (told.requests, told.answer["text"], told.answer["attempts"], told.heard) == (2, WHOLE, 2, WHOLE)
    assert [part["retry"]["category"] for part in told.parts if "retry" in part] == ["model_down"]
    assert told.seen["open"] == 0, "the one that stood still was let go of"


@pytest.mark.parametrize("side", WIRES, ids=str)
def test_one_that_says_nothing_at_first_has_the_whole_time_out(restless: Hall, side: Side) -> None:
    """A model thinks before its first word, and some say nothing of that."""
    told = restless.ask(side, {"default": {"reply": WHOLE, "delay_s": 0.9}})
    assert (told.requests, told.answer["text"]) == (1, WHOLE)


@pytest.mark.parametrize("side", WIRES, ids=str)
def test_signs_of_life_do_not_lengthen_the_wait_for_the_first_word(hasty: Hall, side: Side) -> None:
    rule = {"reply": PARTIAL, "stall": 0, "alive": "empty", "times": 1}
    told = hasty.ask(side, {"rules": [rule], "default": {"reply": WHOLE}})
    assert (told.requests, told.answer["text"]) == (2, WHOLE)


@pytest.mark.parametrize("side", WIRES, ids=str)
@pytest.mark.parametrize(
    ("rule", "broken_off"),
    [
        ({"reply": PARTIAL, "chunks": 8, "cut": 4}, 1),
        ({"reply": PARTIAL, "chunks": 8, "ends": 4}, 1),
        ({"reply": PARTIAL, "fault": "server", "after": 4}, 1),
        ({"fault": "server"}, 0),
        ({"fault": "limited"}, 0),
    ],
    ids=["cut", "ends", "fails", "server", "limited"],
)
def test_what_may_be_on_the_bill_is_told_beside_the_answer(hall: Hall, side: Side, rule: dict[str, Any], broken_off: int) -> None:
    """A request that broke off while it was answered is counted, by a guess; one that was refused is not."""
    usage = mended(hall, side, rule).answer["usage"]
    assert (usage.get("failed", 0), usage.get("guessed", 0) > 0) == (broken_off, bool(broken_off))
    error = hall.ask(side, {"default": rule}).error
    assert error is not None
    assert error.spent.get("failed", 0) == 3 * broken_off


# -- what does not ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "fault"), whose("too_long", "too_large"))
@streams
def test_what_does_not_fit_is_known_in_the_vendors_own_words(hall: Hall, side: Side, fault: str, stream: bool) -> None:
    failed(hall.ask(side, {"default": {"fault": fault}}, stream=stream), ContextTooLong, 1)


def test_what_does_not_fit_is_known_in_a_stream_too(hall: Hall, side: Side) -> None:
    failed(hall.ask(side, {"default": {"reply": PARTIAL, "fault": "too_long", "after": 2}}), ContextTooLong, 1)


@pytest.mark.parametrize(("side", "fault"), whose("bad_key", "forbidden", "no_money"))
def test_a_key_that_is_none_or_has_no_credit_is_not_tried_again(hall: Hall, side: Side, fault: str) -> None:
    if side.signs_in and fault == "bad_key":
        pytest.skip("it asks once more, with a new token: test_signed.py")
    error = failed(hall.ask(side, {"default": {"fault": fault}}), NotAuthorized, 1)
    assert error.remedy


def test_a_wrong_key_is_refused(hall: Hall, side: Side) -> None:
    if side.signs_in:
        pytest.skip("it gets another: test_signed.py")
    failed(hall.ask(side, {"key": "another"}), NotAuthorized, 1)


@pytest.mark.parametrize(("side", "fault"), whose("policy", "no_model", "invalid"))
@streams
def test_what_the_vendor_will_not_answer_is_not_asked_again(hall: Hall, side: Side, fault: str, stream: bool) -> None:
    error = failed(hall.ask(side, {"default": {"fault": fault}}, stream=stream), Rejected, 1)
    assert isinstance(error, Rejected)
    assert error.of_words is (fault != "no_model"), "whether leaving the words out may help"


@streams
def test_an_answer_that_policy_took_is_none(hall: Hall, side: Side, stream: bool) -> None:
    if side.words in ("ollama", "vllm"):
        pytest.skip("it has no policy")
    failed(hall.ask(side, {"default": {"reply": PARTIAL, "blocked": True}}, stream=stream), Rejected, 1)


@streams
def test_a_redirection_is_not_followed(hall: Hall, side: Side, stream: bool) -> None:
    elsewhere = next(fake for name, fake in hall.servers.items() if name != side.server)
    elsewhere.play({})
    headers = {"Location": f"{elsewhere.url}/v1/chat/completions"}
    told = hall.ask(side, {"default": {"status": 307, "body": "moved", "headers": headers}}, stream=stream)
    failed(told, Rejected, 1)
    assert elsewhere.seen()["requests"] == 0


@streams
def test_a_page_is_no_answer(hall: Hall, side: Side, stream: bool) -> None:
    told = hall.ask(side, {"default": {"body": "<html><title>Sign in</title></html>"}}, stream=stream)
    assert "Sign in" in failed(told, Rejected, 1).text
