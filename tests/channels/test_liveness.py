"""The platform clock."""

from __future__ import annotations

from bubbles.channels.liveness import REBUILDS, Liveness


def test_silence_is_counted_from_the_last_proof() -> None:
    now = [100.0]
    clock = Liveness(60, lambda: now[0])
    assert (clock.left_s, clock.silent_s, clock.heard) == (60, None, False)
    clock.begin()
    now[0] = 140.0
    assert (clock.left_s, clock.silent_s) == (20, None)
    clock.proved()
    now[0] = 210.0
    assert (clock.left_s, clock.silent_s, clock.heard) == (-10, 70, True)


def test_a_new_client_has_the_whole_time_and_proves_nothing() -> None:
    now = [0.0]
    clock = Liveness(60, lambda: now[0])
    clock.proved()
    now[0] = 100.0
    clock.begin()
    assert (clock.left_s, clock.silent_s, clock.heard) == (60, 100, False)


def test_two_new_clients_are_worth_a_try_and_a_proof_begins_anew() -> None:
    clock = Liveness(60, lambda: 0.0)
    assert [clock.rebuild() for _ in range(REBUILDS + 2)] == [True, True, False, False]
    clock.begin()
    assert clock.rebuild() is False
    clock.proved()
    assert clock.rebuild() is True
