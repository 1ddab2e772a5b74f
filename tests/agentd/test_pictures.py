"""Pictures that people sent: shown to models that see, a line with the path to others, and never read from outside the session."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bubbles.agentd.pictures import BYTES_MOST, MOST, Pictures
from bubbles.agentd.request import Request
from bubbles.kernel import context
from bubbles.kernel.context import encode
from bubbles.messages import Media
from bubbles.paths import Home
from bubbles.workspace import Workspace
from tests.agentd.world import world

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))


def note(path: str, type: str = "image/png", size: int = 9) -> str:
    return f"[file: {path}, {type}, {size} bytes]"


def words(*notes: str, text: str = "look") -> bytes:
    return encode({"role": "user", "content": "\n".join(["[Sun 2025-11-30 11:00 UTC · telegram · Ann]", text, *notes])})


def told(request: Request) -> list[dict[str, Any]]:
    messages = [json.loads(line) for line in request.after(0)]
    assert not context.check(messages)
    assert context.build(messages) == messages, "modeld may build it anew"
    return messages


def seen(request: Request) -> list[bytes]:
    parts = [part for message in told(request) if isinstance(message["content"], list) for part in message["content"] if part["type"] == "image_url"]
    return [base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "sessions" / "s" / "data"
    path.mkdir(parents=True)
    return path


def pictures(data: Path) -> Pictures:
    return Pictures(lambda: Workspace.open(data.parent))


def asked(*lines: bytes) -> Request:
    return Request(encode({"role": "system", "content": "be kind"}), [], 0, list(lines))


def test_a_picture_stands_behind_the_words_it_came_with(data: Path) -> None:
    (data / "cat.png").write_bytes(PNG)
    first = words(note("../data/cat.png"), note("../data/notes.txt", "text/plain"))
    request = asked(first, encode({"role": "assistant", "content": "a cat"}), words())
    shown = pictures(data).shown(request)
    assert seen(shown) == [PNG]
    said = told(shown)[1]["content"]
    assert said[0]["text"].endswith(note("../data/notes.txt", "text/plain"))
    assert said[1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert shown.after(0)[2:] == request.after(0)[2:]


@pytest.mark.parametrize(
    "path",
    ["../data/gone.png", "../data/text.png", "../data/large.png", "../data/link.png", "../../../secret.png", "../data/../SOUL.md", "/etc/passwd"],
)
def test_what_is_no_picture_of_the_session_s_stays_a_line(data: Path, path: str) -> None:
    (data.parents[2] / "secret.png").write_bytes(PNG)
    (data / "link.png").symlink_to(data.parents[2] / "secret.png")
    (data / "text.png").write_text("not a picture")
    (data / "large.png").write_bytes(PNG + bytes(BYTES_MOST))
    request = asked(words(note(path)))
    assert pictures(data).shown(request).after(0) == request.after(0)


@pytest.mark.parametrize("text", [f"see {note('../data/cat.png')} there", note("../data/cat.png") + " and more"])
def test_what_only_looks_like_such_a_line_is_none(data: Path, text: str) -> None:
    (data / "cat.png").write_bytes(PNG)
    request = asked(words(text=text), encode({"role": "assistant", "content": note("../data/cat.png")}), words())
    assert seen(pictures(data).shown(request)) == []


def test_the_same_pictures_are_the_same_bytes_and_the_oldest_go_some_at_a_time(data: Path) -> None:
    one, lines, before, changes = pictures(data), list[bytes](), list[bytes](), 0
    for n in range(MOST * 3):
        (data / f"p{n}.png").write_bytes(PNG + bytes([n]))
        lines += [words(note(f"../data/p{n}.png")), encode({"role": "assistant", "content": "seen"})]
        shown = one.shown(asked(*lines, words()))
        pictures_now = seen(shown)
        assert pictures_now[-1] == PNG + bytes([n])
        assert min(n + 1, MOST - 2) <= len(pictures_now) <= MOST
        now = shown.after(0)[:-1]
        changes += now[: len(before)] != before
        before = now
        assert one.shown(asked(*lines, words())).after(0) == shown.after(0)
    assert changes == MOST * 2 // 3


def test_many_large_ones_are_bounded_together(data: Path) -> None:
    for n in range(4):
        (data / f"p{n}.png").write_bytes(PNG + bytes(2_500_000) + bytes([n]))
    shown = pictures(data).shown(asked(words(*(note(f"../data/p{n}.png") for n in range(4)))))
    assert [picture[-1] for picture in seen(shown)] == [2, 3]


@pytest.mark.parametrize("vision", [True, False])
def test_a_picture_is_shown_to_a_model_that_sees_and_told_to_others(home: Home, vision: bool) -> None:
    with world(home, {"default": {"reply": "a cat"}}, providers__custom__models={"fake-1": {"vision": vision}}) as w:
        w.start()
        w.say("hello")
        (home.session("s") / "data" / "cat.png").write_bytes(PNG)
        id = w.put("what is this?", media=(Media(path="../data/cat.png", type="image/png", name="cat.png", size=len(PNG)),))
        w.ring()
        assert w.wait(id).text == "a cat"
        assert w.say("and its colour?").outcome == "replied"
        said = [message["content"] for message in w.fake.seen()["bodies"][-1]["messages"] if "what is this?" in json.dumps(message)]
        assert len(said) == 1
        assert isinstance(said[0], list) == vision
        assert "[file: ../data/cat.png, image/png" in json.dumps(said[0])
        assert all(isinstance(message["content"], str) for message in w.history())
        w.fake.play({"default": {"reply": "ok"}})
        (home.session("s") / "data" / "cat.png").unlink()
        w.kill("agentd")
        w.start("agentd")
        assert w.say("still?").outcome == "replied"
        assert "base64" not in json.dumps(w.fake.seen()["bodies"][-1])
