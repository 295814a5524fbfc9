from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.helm_engine import HelmEngine
from tests.support.rendered_chart import Rendered, ci_values, merged


@pytest.fixture(scope="session")
def engine() -> Iterator[HelmEngine]:
    with HelmEngine() as engine:
        yield engine


@pytest.fixture
def render(engine: HelmEngine) -> Callable[..., Rendered]:
    """Render the values of a file in helm/ci, with others laid over them."""

    def render(name: str, over: dict[str, Any] | None = None) -> Rendered:
        return Rendered.of(engine.render(merged(ci_values(name), over or {})))

    return render
