"""Which partition a turn, or an ingest task, belongs to: the first word that it has of five.

    session:<id>        `session_id`, else `props.session_id`
    tenant:<id>         of whoever is calling, not of the item
    corpus:<path>       `props.full_path`
    corpus:<root>       the root of `metadata.target`
    type:<type>         `metadata.type`, else `type`, else `task`

A session comes first since turn N + 1 reads what turn N wrote: their order is needed for them to be
right, while the others only group.  What is no text, or an empty one, is not there.

Source: SEMANTICS 8.3; seed queue-driven-agent-dispatch, "Ordering: session beats tenant".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from streams.core.bounds import TEXT_CHARS_MAX
from streams.core.placement import partition_of

__all__ = ["CONTAINERS", "corpus_root", "partition_key_for", "partition_of_session", "session_key"]

CONTAINERS = frozenset({"agent-packages", "workspace", "worktrees", "repos"})
"""Folders that hold one corpus in each of their entries."""

_ROOT_PARTS = 3


def partition_key_for(item: Mapping[str, Any], /, *, tenant: str = "") -> str:
    """Return the partition key of an item, at most TEXT_CHARS_MAX characters and its prefix.

    Args:    item: a turn's fields, or an ingest task with `props`, `metadata` and `type`.
             tenant: of whoever is calling, empty for nobody.
    """
    props, metadata = _table(item, "props"), _table(item, "metadata")
    if session_id := _text(item, "session_id") or _text(props, "session_id"):
        return session_key(session_id)
    if tenant:
        return _key("tenant", tenant)
    if full_path := _text(props, "full_path"):
        return _key("corpus", full_path)
    if target := _text(metadata, "target"):
        return _key("corpus", corpus_root(target))
    return _key("type", _text(metadata, "type") or _text(item, "type") or "task")


def session_key(session_id: str, /) -> str:
    """Return the partition key of all turns and records of a session."""
    return _key("session", session_id)


def partition_of_session(session_id: str, partitions: int, /) -> int:
    """Return the partition of a session's turns, claims and records."""
    return partition_of(session_key(session_id).encode(), partitions)


def corpus_root(target: str, /) -> str:
    """Return the folder that stands for all files of one corpus, `unknown` for an empty path.

    The entry of the deepest container that has one; else the first three parts of the path.
    """
    parts = [part for part in target.replace("\\", "/").split("/") if part]
    for at in reversed(range(len(parts) - 1)):
        if parts[at] in CONTAINERS:
            return "/".join(parts[: at + 2])
    return "/".join(parts[:_ROOT_PARTS]) or "unknown"


def _key(word: str, value: str) -> str:
    # What is cut shares a partition with what begins in the same way: that is harmless.
    return f"{word}:{value[:TEXT_CHARS_MAX]}"


def _table(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = item.get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _text(item: Mapping[str, Any], name: str) -> str:
    found = item.get(name)
    return found if isinstance(found, str) else ""
