"""Handlers of the GitHub triage example: functions of an event and, if wanted, its context."""

from __future__ import annotations

from typing import Any

from streams.handler_api import Context, Event

_LABELS = {
    "bug": ("crash", "error", "exception", "fails", "broken", "bug"),
    "question": ("how", "why", "?"),
}


def triage_issue(event: Event) -> dict[str, Any]:
    """Choose labels for an issue by the words of its title."""
    issue = event.payload["issue"]
    title = issue["title"].lower()
    labels = [label for label, words in _LABELS.items() if any(word in title for word in words)]
    return {"issue": issue["number"], "labels": labels or ["triage"]}


async def notify_release(event: Event, context: Context) -> dict[str, Any]:
    """Announce a release to a chat that is down at first: two attempts fail, the third succeeds.

    The attempt's number decides, so that running one attempt again ends in the same way.
    """
    if context.attempt < 3:
        raise ConnectionError(f"the chat is down (attempt {context.attempt})")
    release = event.payload["release"]
    context.logger.info("release_announced")
    return {"announced": release["tag_name"], "attempt": context.attempt}


def mirror_push(event: Event) -> None:
    """Push to a mirror that is gone for good: every attempt fails, the event is dead-lettered."""
    repository = event.payload["repository"]["full_name"]
    raise RuntimeError(f"the mirror of {repository} does not exist any more")
