"""The roles of the application and what each one needs.

Source: DESIGN "Roles".
"""

from __future__ import annotations

from enum import StrEnum

from streams.errors import ConfigError


class Role(StrEnum):
    """A part of the application that can run alone."""

    INGEST = "ingest"
    REGISTRY = "registry"
    INBOX = "inbox"
    DISPATCH = "dispatch"
    INVOKER = "invoker"
    RELAY = "relay"
    SCHEDULER = "scheduler"


ALL_ROLES: tuple[Role, ...] = tuple(Role)

STAGE_ROLES = frozenset({Role.REGISTRY, Role.INBOX, Role.DISPATCH, Role.SCHEDULER})
"""Roles that fold a mailbox; the others are edges."""


def parse_roles(names: list[str] | None, /) -> tuple[Role, ...]:
    """Roles by name, in declaration order; all of them when none is named.

    Raises: ConfigError naming every unknown one.
    """
    if not names:
        return ALL_ROLES
    known = {role.value for role in Role}
    problems = [
        f"role {name!r} is unknown, expected one of {', '.join(sorted(known))}"
        for name in names
        if name not in known
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(role for role in Role if role.value in names)
