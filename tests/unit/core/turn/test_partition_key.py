"""The partition key: a session before a tenant, a corpus, a type."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.bounds import TEXT_CHARS_MAX
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.partition_key import (
    CONTAINERS,
    corpus_root,
    partition_key_for,
    partition_of_session,
    session_key,
)

WHOLE: dict[str, Any] = {
    "session_id": "s1",
    "props": {"session_id": "s2", "full_path": "org/repo"},
    "metadata": {"target": "/home/u/workspace/proj/src/a.py", "type": "file"},
    "type": "task-type",
}


@pytest.mark.parametrize(
    ("item", "tenant", "key"),
    [
        pytest.param(WHOLE, "acme", "session:s1", id="8-03 a session beats a tenant"),
        pytest.param({**WHOLE, "session_id": ""}, "acme", "session:s2", id="session of the props"),
        pytest.param(
            {**WHOLE, "session_id": "", "props": {"full_path": "org/repo"}},
            "acme",
            "tenant:acme",
            id="the tenant of the caller",
        ),
        pytest.param(
            {"tenant": "acme", "type": "x"}, "", "type:x", id="not the tenant of the item"
        ),
        pytest.param({"props": {"full_path": "org/repo"}}, "", "corpus:org/repo", id="8-04"),
        pytest.param(
            {"metadata": WHOLE["metadata"], "type": "t"},
            "",
            "corpus:home/u/workspace/proj",
            id="the root of the target",
        ),
        pytest.param({"metadata": {"target": "/"}}, "", "corpus:unknown", id="a path of nothing"),
        pytest.param({"metadata": {"type": "file"}, "type": "t"}, "", "type:file", id="type"),
        pytest.param({"type": "t"}, "", "type:t", id="type of the item"),
        pytest.param({}, "", "type:task", id="nothing"),
        pytest.param(
            {"session_id": 7, "props": [1], "metadata": "x", "type": None},
            "",
            "type:task",
            id="what is no text is not there",
        ),
    ],
)
def test_the_first_word_of_the_hierarchy_is_the_key(
    item: dict[str, Any], tenant: str, key: str
) -> None:
    assert partition_key_for(item, tenant=tenant) == key


def test_8_05_turns_of_a_session_share_a_key_and_sessions_do_not() -> None:
    def key(session_id: str, job_id: str) -> str:
        envelope = AgentTurnEnvelope(job_id=job_id, session_id=session_id, enqueued_at_ms=0)
        return partition_key_for(envelope.json_fields(), tenant="acme")

    assert key("sess-a", "1") == key("sess-a", "2") == session_key("sess-a")
    assert key("sess-b", "3") != key("sess-a", "1")


@pytest.mark.parametrize(
    ("path", "root"),
    [
        pytest.param("/home/u/workspace/proj/src/a.py", "home/u/workspace/proj", id="8-06 entry"),
        pytest.param("/a/b/c/d", "a/b/c", id="8-06 three parts"),
        pytest.param("", "unknown", id="8-06 empty"),
        ("a", "a"),
        ("//a///b", "a/b"),
        ("/x/repos/one/worktrees/two/f", "x/repos/one/worktrees/two"),
        ("/x/repos/one/y/repos", "x/repos/one"),
        ("/a/b/c/repos", "a/b/c"),
        ("C:\\src\\repos\\one\\f.py", "C:/src/repos/one"),
    ],
)
def test_the_root_of_a_corpus(path: str, root: str) -> None:
    assert corpus_root(path) == root


@given(st.lists(st.sampled_from([*sorted(CONTAINERS), "a", "b", "c"]), max_size=8))
def test_a_root_begins_its_path_and_is_the_root_of_all_below_it(parts: list[str]) -> None:
    root = corpus_root("/".join(parts))

    if parts:
        assert "/".join(parts).startswith(root)
        assert corpus_root(f"{root}/file") in (root, f"{root}/file")
    else:
        assert root == "unknown"


def test_a_key_is_bounded() -> None:
    assert partition_key_for({"session_id": "s" * 2_000}) == "session:" + "s" * TEXT_CHARS_MAX
    assert partition_key_for({}, tenant="t" * 2_000) == "tenant:" + "t" * TEXT_CHARS_MAX


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.integers(1, 64))
def test_a_session_lives_in_one_partition(session_id: str, partitions: int) -> None:
    assert 0 <= partition_of_session(session_id, partitions) < partitions


def test_sessions_spread_over_the_partitions() -> None:
    found = {partition_of_session(f"sess-{number}", 6) for number in range(100)}

    assert found == set(range(6))
