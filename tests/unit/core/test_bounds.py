from hypothesis import given
from hypothesis import strategies as st

from streams.core import bounds
from streams.testing import binding, event, policy
from tests.support.stage_log import CODEC

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(trigger_id=TEXT, handler=TEXT, note=TEXT, events=st.lists(TEXT, max_size=20))
def test_the_size_of_a_binding_is_never_underestimated(
    trigger_id: str, handler: str, note: str, events: list[str]
) -> None:
    added = binding(trigger_id, handler=handler, note=note, events=events, version=1)
    assert len(CODEC.encode("binding_definition", added)) <= bounds.binding_bytes(added)


def test_what_is_within_bounds_has_no_problem() -> None:
    assert bounds.event_problem(event()) is None
    assert bounds.binding_problem(binding()) is None
    assert bounds.policy_problem(policy()) is None
    assert bounds.revision_problem([binding()] * 1_000, ["a@v1"] * 1_000) is None


def test_a_text_is_cut_to_its_bound_and_not_before() -> None:
    assert bounds.shortened("x" * 1_024) == "x" * 1_024
    assert bounds.shortened("x" * 1_025) == "x" * 1_024
