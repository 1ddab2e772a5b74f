"""Receipts: what a file says at every moment of its life, and after every accident."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.channels.receipts import Receipt, Receipts, fold, parse
from bubbles.errors import BubblesError, TryAgain
from bubbles.messages import LATEST, to_line
from tests.spool.disks import Dying, Killed, Recording, Refusing, Stuttering

FACTS = [
    {"begun": 0, "key": "m.0"},
    {"refused": 0, "why": "429", "until": 1000.0},
    {"begun": 0, "key": "m.0"},
    {"uncertain": 0},
    {"begun": 0, "key": "m.0"},
    {"delivered": 0, "id": "5 – 五"},
    {"begun": 1, "key": "m.1"},
]

part = st.integers(0, 3)
facts = st.lists(
    st.one_of(
        part.map(lambda n: {"begun": n, "key": f"m.{n}"}),
        part.map(lambda n: {"delivered": n, "id": f"p{n}"}),
        part.map(lambda n: {"refused": n, "why": "busy", "until": 7.0}),
        part.map(lambda n: {"uncertain": n}),
        st.sampled_from([{"held": "old"}, {"settled": "delivered"}, {"settled": "lost"}, {"later": "of another version"}, {"begun": "no number"}]),
    ),
    max_size=12,
)


def written(path: Path, *facts: dict) -> Receipts:
    receipts = Receipts(path, now=lambda: 1.0)
    for fact in facts:
        receipts.note("m", **fact)
    return receipts


def test_what_is_not_known_is_an_empty_receipt(tmp_path: Path) -> None:
    assert Receipts(tmp_path).of("m") == Receipt()


def test_the_facts_of_a_send(tmp_path: Path) -> None:
    receipts = written(tmp_path, *FACTS)
    found = receipts.of("m")
    assert (found.delivered, found.begun, found.uncertain, found.first(2), found.first(1)) == ({0: "5 – 五"}, 1, {0: 1}, 1, None)
    assert [fact["at"] for fact in receipts.facts("m")] == [1.0] * len(FACTS)


def test_a_refusal_says_until_when_and_a_new_try_forgets_it(tmp_path: Path) -> None:
    assert (written(tmp_path, *FACTS[:2]).of("m").until, fold(FACTS[:2]).why, fold(FACTS[:3]).until) == (1000.0, "429", 0.0)


@pytest.mark.parametrize("fact", [{"settled": "lost"}, {"held": "uncertain"}])
def test_a_person_who_decides_ends_the_doubts(fact: dict) -> None:
    found = fold([{"begun": 0}, {"uncertain": 0}, {"begun": 0}, {"uncertain": 0}, fact])
    assert (found.doubts, found.uncertain, found.begun) == ({}, {0: 2}, None)


def test_the_last_word_of_a_person_counts() -> None:
    assert fold([{"settled": "lost"}, {"settled": "delivered"}]).settled == "delivered"
    assert fold([{"settled": "delivered"}, {"settled": "lost"}]).settled == "lost"
    assert fold([{"settled": "delivered"}, {"settled": "maybe"}]).settled == "delivered"


@given(facts)
def test_every_prefix_of_a_file_can_be_read_and_says_what_its_whole_lines_say(facts: list[dict]) -> None:
    content = b"".join(map(to_line, facts))
    for end in range(len(content) + 1):
        whole = content[:end].count(b"\n") + content[:end].endswith(b"}")  # a line that lacks only its end is whole
        assert fold(parse(content[:end])) == fold(facts[:whole])


@given(st.binary(max_size=200), facts)
def test_nothing_that_stands_in_a_file_can_stop_it(noise: bytes, facts: list[dict]) -> None:
    content = b"".join(map(to_line, facts))
    assert isinstance(fold(parse(noise + content)), Receipt)
    assert fold(parse(b"\0" * 9 + b"\n" + content)) == fold(facts)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([10**400, -(10**400), 10**20, 2**63]) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["begun", "delivered", "refused", "uncertain", "held", "settled", "until", "why", "id", "key", "at"])


@given(st.lists(any_json | st.dictionaries(names, any_json | part, max_size=4), max_size=5))
def test_any_lines_of_json_are_read(lines: list[object]) -> None:
    found = fold(parse(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    assert 0 <= found.until <= LATEST
    assert all(isinstance(text, str) for text in (found.why, found.settled, *found.delivered.values()))


@pytest.mark.parametrize("until", [10**400, -(10**400), 1e300, -1, LATEST + 1, float("nan"), float("inf"), float("-inf"), "7", None, [7], {}])
def test_a_number_that_is_no_time_is_none(until: object) -> None:
    assert fold(parse(json.dumps({"refused": 0, "why": "busy", "until": until}).encode())).until == 0.0


def test_a_line_as_deep_as_no_parser_goes_stops_nothing() -> None:
    for depth in (100, 300, 900, 990, 5000, 50_000):
        assert fold(parse(b'{"delivered":0,"id":' + b"[" * depth + b"]" * depth + b"}")).why == ""


@pytest.mark.parametrize("left", range(1, 40))
def test_what_is_noted_after_a_torn_line_stands_on_its_own(tmp_path: Path, left: int) -> None:
    receipts = written(tmp_path, FACTS[0])
    file = receipts.path / "m.jsonl"
    file.write_bytes(file.read_bytes()[:left])
    receipts.note("m", delivered=0, id="7")
    assert receipts.of("m").delivered == {0: "7"}


def test_another_process_may_add_a_persons_word_meanwhile(tmp_path: Path) -> None:
    written(tmp_path, *FACTS)
    Receipts(tmp_path).settle("m", "delivered")
    found = written(tmp_path, {"uncertain": 1}).of("m")
    assert (found.settled, found.doubts) == ("delivered", {1: 1})


def test_any_id_has_a_file_of_its_own(tmp_path: Path) -> None:
    receipts = Receipts(tmp_path)
    for id in ("../../a", "聊", "x" * 300, "a/b"):
        receipts.note(id, begun=0)
        assert receipts.of(id).begun == 0
    assert len(list(receipts.path.iterdir())) == 4
    assert receipts.path.stat().st_mode & 0o777 == 0o700


def test_a_note_is_synced_where_that_is_asked_for(tmp_path: Path) -> None:
    disk = Recording()
    Receipts(tmp_path, disk=disk).note("m", begun=0)
    assert "fdatasync" in disk.calls
    disk.calls.clear()
    Receipts(tmp_path, disk=disk).note("m", sync=False, refused=0)
    assert not {"fdatasync", "fsync"} & set(disk.calls)


def test_a_disk_that_takes_little_at_a_time(tmp_path: Path) -> None:
    receipts = Receipts(tmp_path, disk=Stuttering())
    for fact in FACTS:
        receipts.note("m", **fact)
    assert receipts.of("m") == fold(FACTS)


def test_killed_at_any_call_the_fact_is_there_or_is_not(tmp_path: Path) -> None:
    n = 0
    while True:
        n += 1
        path = tmp_path / str(n)
        path.mkdir()
        written(path, *FACTS[:5])
        disk = Dying(n)
        try:
            Receipts(path, disk=disk).note("m", **FACTS[5])
        except Killed:
            disk.release()
        else:
            break
        assert Receipts(path).of("m") in (fold(FACTS[:5]), fold(FACTS[:6]))
        assert written(path, FACTS[6]).of("m") in (fold([*FACTS[:5], FACTS[6]]), fold(FACTS))
    assert n > 5


@pytest.mark.parametrize("n", range(1, 6))
def test_a_disk_that_refuses_is_named_and_leaves_the_rest_readable(tmp_path: Path, n: int) -> None:
    written(tmp_path, FACTS[0])
    disk = Refusing(n, errno.ENOSPC)
    try:
        Receipts(tmp_path, disk=disk).note("m", **FACTS[1])
    except BubblesError as error:
        assert isinstance(error, TryAgain) and error.remedy  # noqa: PT017, PT018
        disk.release()
    assert disk.refused
    assert written(tmp_path, FACTS[2]).of("m").begun == 0
