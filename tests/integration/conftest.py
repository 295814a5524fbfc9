"""What integration tests share."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def run() -> str:
    """Begins the names of one test: tests share topics and groups."""
    return uuid.uuid4().hex[:8]
