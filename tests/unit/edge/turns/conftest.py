"""Either database, for each test that asks for a `place`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.edge.turns.sql_turns import SqlTurnStore
from tests.support.sql_turns import Place, postgres_place, sqlite_place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        with sqlite_place(tmp_path) as found:
            yield found
    else:
        with postgres_place(request.getfixturevalue("postgres")) as found:
            yield found


@pytest.fixture
def store(place: Place) -> SqlTurnStore:
    return place.open().store
