"""`harn trigger explain`: what happened to one event, as a tree for people or as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from rich.console import Console
from rich.tree import Tree

from streams.audit.explain import READS, DispatchStory, EventStory, Happening, JobStory
from streams.cli.plain import escape
from streams.core.clock import rfc3339
from streams.core.wire import RowRegisteredBinding
from streams.errors import BrokerError
from streams.provision import topics_of_bindings

__all__ = ["UNSEEN", "as_json", "print_story", "require_readable", "unseen_topics"]

UNSEEN = (
    "they are gone, or this user may not see them; `harn topology acls` prints the rights of role "
    "operator"
)

_STYLES = {
    "dispatch_succeeded": "green",
    "dispatch_failed": "yellow",
    "dlq_moved": "red",
    "dispatch_skipped": "cyan",
    "dispatch_cancelled": "magenta",
    "live": "bold",
    "job_acked": "green",
    "job_dead": "red",
    "job_purged": "magenta",
}
_SHOWN_CHARS_MAX = 300  # of a field: results and errors may be long, and are said several times

# Said twice, once for people's streams and once for machines': the tree shows it once.
_REPEATED = frozenset(
    {
        "DispatchStarted",
        "DispatchSucceeded",
        "DispatchFailed",
        "RetryScheduled",
        "DlqMoved",
        "DispatchCancelled",
    }
)


def require_readable(present: Collection[str]) -> None:
    """Raise BrokerError unless everything that each explanation is told from is among these.

    A broker does not list what a user may not see: without this, nothing would be told of it.
    """
    hidden = [topic for topic in READS if topic not in present]
    if hidden:
        raise BrokerError(
            f"{', '.join(hidden)} cannot be seen: {UNSEEN}",
            retryable=False,
            remedy="grant these rights, or see with `harn topology plan` what is missing",
        )


def unseen_topics(
    present: Collection[str], story: EventStory, registered: Iterable[RowRegisteredBinding]
) -> list[str]:
    """Return the topics of gates and queues that belong to the story and are not among these."""
    bindings = [
        row["binding"]
        for row in registered
        if f"{row['binding']['trigger_id']}@v{row['binding']['version']}" in story.binding_keys
    ]
    return sorted(
        {topic.name for topic in topics_of_bindings(bindings) if topic.name not in present}
    )


def print_story(console: Console, story: EventStory) -> None:
    """Print the tree: envelopes, then each dispatch with its steps and the time since the first."""
    tree = Tree(f"[bold]{escape(story.event_id)}[/]")
    for happening in story.envelopes:
        event = happening.value["event"]
        tree.add(
            f"{rfc3339(happening.at_ms)} accepted {escape(event['provider'])} "
            f"{escape(event['kind'])}{_replayed(happening.value)} [dim]{happening.position}[/]"
        )
    for happening in story.replays:
        event = happening.value["event"]
        tree.add(
            f"{rfc3339(happening.at_ms)} replayed as {escape(event['id'])} "
            f"[dim]{happening.position}[/]"
        )
    for happening in story.happenings:
        tree.add(_line(happening, happening.at_ms))
    for dispatch in story.dispatches.values():
        _add_dispatch(tree, dispatch)
    if story.graph.edges:
        _add_graph(tree, story)
    console.print(tree)


def _add_graph(tree: Tree, story: EventStory) -> None:
    """Add the edges of the action graph, each with how its end stands."""
    branch = tree.add("[bold]action graph[/]")
    for edge in story.graph.edges:
        label = f" ({edge['label']})" if edge["label"] else ""
        node = story.graph.nodes.get(edge["to_id"])
        stands = "" if node is None else f" {node['status']}/{node['outcome']}"
        line = f"{edge['from_id']} → {edge['to_id']} {edge['kind']}{label}"
        branch.add(f"{escape(line)}[dim]{escape(stands)}[/]")


def _replayed(envelope: dict[str, Any]) -> str:
    original = envelope["replay_of_event_id"]
    return "" if original is None else f", a replay of {escape(original)}"


def _add_dispatch(tree: Tree, dispatch: DispatchStory) -> None:
    style = _STYLES.get(dispatch.outcome, "")
    shown = f"[{style}]{dispatch.outcome}[/]" if style else dispatch.outcome
    name = escape(dispatch.binding_key or dispatch.dispatch_id)
    branch = tree.add(f"[bold]{name}[/] {shown} [dim]{dispatch.dispatch_id}[/]")
    first_ms = dispatch.happenings[0].at_ms if dispatch.happenings else 0
    for happening in dispatch.happenings:
        if happening.kind not in _REPEATED:
            branch.add(_line(happening, first_ms))
    if dispatch.standing is not None:
        branch.add(f"[bold]now[/] {escape(dispatch.standing)}")
    for job in dispatch.jobs:
        _add_job(branch, job, first_ms)


def _add_job(branch: Tree, job: JobStory, first_ms: int) -> None:
    style = _STYLES.get(job.outcome, "")
    shown = f"[{style}]{job.outcome}[/]" if style else job.outcome
    name = escape(f"job {job.job_event_id} of queue {job.queue}")
    steps = branch.add(f"[bold]{name}[/] {shown}")
    for happening in job.happenings:
        steps.add(_line(happening, first_ms))


def _line(happening: Happening, first_ms: int) -> str:
    after = f"+{(happening.at_ms - first_ms) / 1000:.3f} s"
    detail = escape(_detail(happening.value))
    return f"{after:>12} {happening.kind} {detail} [dim]{happening.position}[/]".replace(
        "  [", " ["
    )


def _detail(value: dict[str, Any]) -> str:
    """The fields of a record that tell a person something."""
    names = (
        *("attempt", "outcome", "delay_ms", "reason", "final_error", "error_msg", "error"),
        *("result", "skip_stage", "detail", "gate", "predicate", "first_event_id"),
        *("requested_by", "audit_id", "status", "state", "replays", "replay_event_id"),
        *("invoker_id", "losses", "current_fence"),
        *("consumer_id", "claim_id", "delivery", "deliveries", "skipped_by", "purged_by"),
    )
    return " ".join(
        f"{name}={_short(value[name])}" for name in names if value.get(name) is not None
    )


def _short(value: object) -> str:
    """Return a field's text as a line can hold it; `--json` has all of it."""
    text = str(value)
    if len(text) <= _SHOWN_CHARS_MAX:
        return text
    return f"{text[:_SHOWN_CHARS_MAX]}… ({len(text)} characters, all of them with --json)"


def as_json(story: EventStory) -> dict[str, Any]:
    """Return the story as one JSON object."""
    return {
        "event_id": story.event_id,
        "envelopes": [_entry(happening) for happening in story.envelopes],
        "replays": [
            {"event_id": each.value["event"]["id"], "position": str(each.position)}
            for each in story.replays
        ],
        "happenings": [_entry(happening) for happening in story.happenings],
        "action_graph": {
            "nodes": list(story.graph.nodes.values()),
            "edges": story.graph.edges,
        },
        "dispatches": [
            {
                "dispatch_id": dispatch.dispatch_id,
                "binding_key": dispatch.binding_key,
                "outcome": dispatch.outcome,
                "standing": dispatch.standing,
                "happenings": [_entry(happening) for happening in dispatch.happenings],
                "jobs": [
                    {
                        "queue": job.queue,
                        "job_event_id": job.job_event_id,
                        "outcome": job.outcome,
                        "happenings": [_entry(happening) for happening in job.happenings],
                    }
                    for job in dispatch.jobs
                ],
            }
            for dispatch in story.dispatches.values()
        ],
    }


def _entry(happening: Happening) -> dict[str, Any]:
    return {
        "at": rfc3339(happening.at_ms),
        "position": str(happening.position),
        "kind": happening.kind,
        "value": {
            name: each.hex() if isinstance(each, bytes) else each
            for name, each in happening.value.items()
            if name != "event"
        },
    }
