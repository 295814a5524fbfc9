import json
from collections.abc import Iterable

import pytest

from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.deliveries import read_deliveries
from streams.edge.ingest.events import EventRequest


def read(*lines: object, provider: str | None = None, as_new: bool = False) -> list[EventRequest]:
    encoded: Iterable[bytes] = [
        line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines
    ]
    return list(read_deliveries(encoded, provider=provider, as_new=as_new))


def test_a_github_delivery_is_named_by_its_event_and_action() -> None:
    opened = {"event": "issues", "payload": {"action": "opened", "n": 1}}
    pushed = {"event": "push", "payload": {"ref": "main"}}
    first, second = read(opened, pushed)
    assert (first.provider, first.kind) == ("github", "issues.opened")
    assert first.headers == {"x-github-event": "issues"}
    assert bytes(first.payload) == b'{"action": "opened", "n": 1}'
    assert (second.provider, second.kind) == ("github", "push")


def test_a_line_as_the_event_api_takes_it_is_taken() -> None:
    [found] = read({"provider": "stripe", "kind": "charge.failed", "payload": [1], "id": "x"})
    assert (found.provider, found.kind, found.id) == ("stripe", "charge.failed", "x")
    assert found.dedupe_key is None, "an id is enough to know a repeat by"


def test_a_provider_is_given_to_lines_that_name_none() -> None:
    first, second = read({"kind": "a"}, {"kind": "a", "provider": "linear"}, provider="notion")
    assert (first.provider, second.provider) == ("notion", "linear")


def test_the_same_file_gives_the_same_keys_and_equal_lines_different_ones() -> None:
    line = {"event": "push", "payload": {}}
    once = [each.dedupe_key for each in read(line, b"", line)]
    again = [each.dedupe_key for each in read(line, b"", line)]
    assert once == again
    assert len(set(once)) == 2
    assert all(once)


def test_a_key_of_the_line_s_own_is_kept_and_as_new_gives_none() -> None:
    [own] = read({"event": "push", "dedupe_key": "mine"})
    [new] = read({"event": "push"}, as_new=True)
    assert (own.dedupe_key, new.dedupe_key) == ("mine", None)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "line 2: the body is not JSON"),
        (b"[1]", "line 2: [0] is no object, expected an event"),
        (b'{"event": 3}', "line 2: kind: expected text"),
        (b'{"kind": "x"}', "line 2: provider is missing"),
        (b'{"event": "x", "payload": {"action": 3}, "nope": 1}', "line 2: nope is not a field"),
    ],
)
def test_a_line_that_is_no_delivery_is_named(line: bytes, problem: str) -> None:
    with pytest.raises(MalformedBody) as caught:
        read(b"", line)
    assert caught.value.problems[0].startswith(problem)
