"""Turns on a real broker: their topics, and settings that make hand-overs short."""

from __future__ import annotations

import pytest

from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.kafka_turns import provision_turns, turn_settings


@pytest.fixture(scope="module")
def settings(kafka: Kafka) -> Settings:
    provision_turns(kafka.settings)
    return turn_settings(kafka.settings, turn_handover_s=120, drain_ms=5_000)
