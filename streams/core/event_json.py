"""An event as one JSON text: how a batch carries its members.

Source: SEMANTICS 1.1, 3.2.
"""

from __future__ import annotations

import json
from typing import Any

from streams.core.wire import TriggerEvent


def event_json(event: TriggerEvent, /) -> str:
    """The event's fields as a JSON object; `provider_payload` is what its text holds.

    Fields that say nothing and the raw body are left out; names are sorted.
    """
    fields: dict[str, Any] = {
        name: value
        for name, value in event.items()
        if value is not None and name not in ("raw_body", "batch", "provider_payload")
    }
    try:
        fields["provider_payload"] = json.loads(event["provider_payload"])
    except ValueError:  # no JSON: somebody wrote the envelope by hand
        fields["provider_payload"] = event["provider_payload"]
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
