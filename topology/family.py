"""Topic families: from `worker.{queue}` and a queue's name to the topic of that queue, and back.

A value may hold any character; those that Kafka does not allow become `_`, so two values can ask
for one topic.  That is refused: they would share a log.

Source: SEMANTICS 1 "topic names" and 10.1.16; DESIGN "Who creates topics".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from topology.errors import TopologyError
from topology.model import Topic, Topology

__all__ = ["NAME_CHARS_MAX", "clash_form", "expand", "family_of", "name_problem", "sanitized"]

NAME_CHARS_MAX = 249
"""Kafka's bound: the name and a partition number make a folder name."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


def sanitized(value: str) -> str:
    """Return `value` with every character that a topic name may not hold replaced by `_`."""
    return _ILLEGAL.sub("_", value)


def clash_form(name: str) -> str:
    """Return the form in which Kafka holds two names for the same: `.` and `_` are one."""
    return name.replace(".", "_")


def name_problem(name: str) -> str | None:
    """Return what makes `name` an illegal topic name, or None."""
    if not name or name in {".", ".."}:
        return f"topic name {name!r} is reserved: expected a word"
    if len(name) > NAME_CHARS_MAX:
        return f"topic name {name[:40]}… has {len(name)} characters, expected <= {NAME_CHARS_MAX}"
    if illegal := _ILLEGAL.search(name):
        return (
            f"topic name {name!r} holds {illegal.group()!r}, "
            "expected only ASCII letters, digits, '.', '_' and '-'"
        )
    return None


def family_of(topology: Topology, name: str) -> Topic | None:
    """Return the declaration that `name` falls under, or None when it is foreign.

    A fixed topic wins over families; of several families the one with the most literal text, so
    that `worker.a.claims` is the claims of queue `a` and not the jobs of a queue `a.claims`.
    """
    for topic in topology.topics:
        if topic.name == name:
            return topic
    fitting = [topic for topic in topology.topics if topic.is_family and _fits(topic, name)]
    return max(fitting, key=_literal_chars, default=None)


def expand(topology: Topology, family: str, value: str, taken: Iterable[str] = ()) -> Topic:
    """Return the topic of one value of a family, for example of one queue.

    Args:    family: name of the declared family.  value: what replaces its placeholder, trimmed.
             taken: the other values that are in use.
    Raises:  KeyError when no such family is declared; TopologyError when the value is blank, its
             topic would be another declaration's or another value's, or the name is illegal.
    """
    declared = topology.topic(family)
    if not declared.is_family:
        raise KeyError(family)
    trimmed = value.strip()
    if not trimmed:
        raise TopologyError(f"{family}: the value is blank, expected a name")
    name = _name(declared, trimmed)
    problems = [problem for problem in (name_problem(name),) if problem]
    problems += _clashes(topology, declared, trimmed, name)
    for other in taken:
        if other.strip() != trimmed and _same(name, _name(declared, other.strip())):
            problems.append(
                f"{family}: {trimmed!r} and {other.strip()!r} would share the topic {name}, "
                "expected names that differ in letters, digits or '-'"
            )
    if problems:
        raise TopologyError(problems, remedy="choose another name")
    return replace(declared, name=name)


def _clashes(topology: Topology, declared: Topic, value: str, name: str) -> list[str]:
    problems = [
        f"{declared.name}: {value!r} would be the topic {topic.name}, which is declared itself"
        for topic in topology.topics
        if not topic.is_family and _same(topic.name, name)
    ]
    owner = family_of(topology, name)
    if not problems and owner is not None and owner.name != declared.name:
        problems.append(
            f"{declared.name}: {value!r} would be the topic {name}, which belongs to {owner.name}"
        )
    return problems


def _name(family: Topic, value: str) -> str:
    return _PLACEHOLDER.sub(sanitized(value), family.name)


def _same(one: str, other: str) -> bool:
    return clash_form(one) == clash_form(other)


def _fits(family: Topic, name: str) -> bool:
    pattern = ".+".join(re.escape(part) for part in _PLACEHOLDER.split(family.name))
    return re.fullmatch(pattern, name) is not None


def _literal_chars(family: Topic) -> int:
    return len(_PLACEHOLDER.sub("", family.name))
