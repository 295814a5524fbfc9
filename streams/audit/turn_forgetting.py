"""Whether a goal, task or session was kept as long as who forgot it says.

The word that forgets a record says how long it was kept, from when on; it stands in the log no
earlier than that.  A word that says neither is no owner's: it moves a record elsewhere.

Source: DESIGN "Proof"; `streams.core.turn.parting`.
"""

from __future__ import annotations

from streams.audit.log import LogRecord
from streams.core.turn.parting import CHANGED_AT, RETENTION

__all__ = ["wrongly_forgotten"]


def wrongly_forgotten(record: LogRecord) -> str | None:
    """Return what is wrong with a word without a value; None when nothing is."""
    told = {name: text for name, text in record.headers if name in (CHANGED_AT, RETENTION)}
    if not told:
        return None
    try:
        changed_at_ms, kept_ms = int(told[CHANGED_AT]), int(told[RETENTION])
    except (KeyError, TypeError, ValueError):
        return f"it forgets a record without saying {CHANGED_AT} and {RETENTION} as numbers"
    if record.timestamp < changed_at_ms + kept_ms:
        early_ms = changed_at_ms + kept_ms - record.timestamp
        return f"it forgets a record {early_ms} ms before it was kept for {kept_ms} ms"
    return None
