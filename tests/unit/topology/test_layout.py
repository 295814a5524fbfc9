from __future__ import annotations

from dataclasses import fields

import pytest

from topology.layout import Layout


@pytest.mark.parametrize("name", [each.name for each in fields(Layout)])
@pytest.mark.parametrize("value", [-1, 1.5, True, "12"])
def test_a_number_that_is_none_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"layout: {name} is .*, expected a whole number"):
        Layout(**{name: value})  # pyright: ignore[reportArgumentType]


def test_every_bad_number_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"partitions is 0.*; lease_ms is 0") as caught:
        Layout(partitions=0, lease_ms=0)
    assert str(caught.value).count("expected a whole number of at least 1") == 2


@pytest.mark.parametrize(
    ("session_ms", "transaction_ms", "wait_ms"), [(6_000, 1_000, 8_000), (6_000, 10_000, 11_000)]
)
def test_a_reader_waits_for_whichever_end_of_a_stopped_owner_is_later(
    session_ms: int, transaction_ms: int, wait_ms: int
) -> None:
    layout = Layout(session_timeout_ms=session_ms, transaction_timeout_ms=transaction_ms)
    assert layout.reader_wait_ms == wait_ms
