"""The rules refuse what the vendors refuse, each for its reason, and take what they take."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.histories import anthropic_rules, gemini_rules, malformed, openai_rules

RULES = {"openai": openai_rules.faults, "anthropic": anthropic_rules.faults, "gemini": gemini_rules.faults}
REFUSED = [
    (vendor, rule, body)
    for vendor, table in (("openai", malformed.OPENAI_REFUSES), ("anthropic", malformed.ANTHROPIC_REFUSES), ("gemini", malformed.GEMINI_REFUSES))
    for rule, body in table
]
TAKEN = [
    (vendor, body)
    for vendor, bodies in (("openai", malformed.OPENAI_TAKES), ("anthropic", malformed.ANTHROPIC_TAKES), ("gemini", malformed.GEMINI_TAKES))
    for body in bodies
]


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) >= 40
    assert {vendor for vendor, _, _ in REFUSED} == set(RULES)


@pytest.mark.parametrize(("vendor", "rule", "body"), REFUSED, ids=[f"{vendor}-{n}-{rule}" for n, (vendor, rule, _) in enumerate(REFUSED)])
def test_what_is_malformed_is_refused_for_its_reason(vendor: str, rule: str, body: Any) -> None:
    faults = RULES[vendor](body)
    assert [fault for fault in faults if rule in fault], faults


@pytest.mark.parametrize(("vendor", "body"), TAKEN, ids=[f"{vendor}-{n}" for n, (vendor, _) in enumerate(TAKEN)])
def test_what_is_well_formed_is_taken(vendor: str, body: Any) -> None:
    assert RULES[vendor](body) == []
