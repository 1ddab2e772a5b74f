"""Names as file names: whatever the name is, and no two of them by accident."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from bubbles.ids import safe

NAMES = st.text(max_size=120) | st.text(alphabet="ab/._-", max_size=100) | st.sampled_from(["", ".", "..", "-", "_", "a" * 300])


@given(NAMES)
def test_any_name_is_a_file_name(name: str) -> None:
    made = safe(name)
    assert set(made) <= set(string.ascii_letters + string.digits + "._-")
    assert 0 < len(made) <= 93
    assert made[0] not in ".-"
    assert safe(made) == made


@given(NAMES, NAMES)
def test_two_names_meet_only_where_one_was_made_of_the_other(one: str, other: str) -> None:
    if safe(one) == safe(other):
        assert one == other or one == safe(other) or other == safe(one)
