from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import TOPOLOGY
from topology.errors import TopologyError
from topology.family import NAME_CHARS_MAX, clash_form, expand, family_of, name_problem

QUEUE = "worker.{queue}"
CLAIMS = "worker.{queue}.claims"


@pytest.mark.parametrize(
    ("family", "value", "name"),
    [
        (QUEUE, "mail", "worker.mail"),
        (QUEUE, " mail ", "worker.mail"),
        (CLAIMS, "mail", "worker.mail.claims"),
        ("trigger.batch.{binding}", "a:b/c", "trigger.batch.a_b_c"),
        (QUEUE, "grüße", "worker.gr__e"),
    ],
)
def test_a_value_becomes_a_legal_topic_of_its_family(family: str, value: str, name: str) -> None:
    topic = expand(TOPOLOGY, family, value)
    assert topic.name == name
    assert topic.partitions == TOPOLOGY.topic(family).partitions
    assert not topic.is_family


@pytest.mark.parametrize(
    ("family", "value", "says"),
    [
        (QUEUE, "  ", "the value is blank"),
        (QUEUE, "queues", "which is declared itself"),
        (QUEUE, "requests", "which is declared itself"),
        (QUEUE, "mail.claims", "belongs to worker.{queue}.claims"),
        (QUEUE, "mail.responses", "belongs to worker.{queue}.responses"),
        (QUEUE, "q" * 243, "has 250 characters, expected <= 249"),
    ],
)
def test_a_value_whose_topic_would_be_another_is_refused(
    family: str, value: str, says: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        expand(TOPOLOGY, family, value)
    assert says in str(caught.value)


@pytest.mark.parametrize("other", ["a_b", "a.b", "a/b", "a b"])
def test_two_values_that_would_share_a_topic_are_refused(other: str) -> None:
    with pytest.raises(TopologyError, match="would share the topic worker"):
        expand(TOPOLOGY, QUEUE, "a:b", taken=["mail", other])


def test_a_value_that_is_already_in_use_is_itself() -> None:
    assert expand(TOPOLOGY, QUEUE, "a:b", taken=["a:b", " a:b ", "a-b"]).name == "worker.a_b"


def test_a_fixed_topic_is_no_family() -> None:
    with pytest.raises(KeyError):
        expand(TOPOLOGY, "worker.queues", "x")


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("worker.mail", QUEUE),
        ("worker.mail.claims", CLAIMS),
        ("worker.requests", "worker.requests"),
        ("trigger.batch.orders", "trigger.batch.{binding}"),
        ("worker.", None),
        ("somebody.elses", None),
        ("xworker.mail", None),
    ],
)
def test_a_topic_is_known_by_its_most_specific_declaration(name: str, declared: str | None) -> None:
    found = family_of(TOPOLOGY, name)
    assert (found.name if found else None) == declared


@given(value=st.text(max_size=60), other=st.text(max_size=60))
def test_values_in_use_together_never_share_a_topic(value: str, other: str) -> None:
    try:
        first = expand(TOPOLOGY, QUEUE, value)
        second = expand(TOPOLOGY, QUEUE, other, taken=[value])
    except TopologyError:
        return
    assert name_problem(first.name) is None
    assert family_of(TOPOLOGY, first.name) == TOPOLOGY.topic(QUEUE)
    assert (clash_form(first.name) == clash_form(second.name)) == (value.strip() == other.strip())


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a" * (NAME_CHARS_MAX + 1)])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    assert name_problem(name) is not None


def test_the_longest_legal_name_is_accepted() -> None:
    assert name_problem("a" * NAME_CHARS_MAX) is None
