"""`harn trigger explain`: what happened to one event, as a tree for people or as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from streams.audit.explain import DispatchStory, EventStory, Happening
from streams.core.clock import rfc3339

__all__ = ["as_json", "print_story"]

_STYLES = {
    "dispatch_succeeded": "green",
    "dispatch_failed": "yellow",
    "dlq_moved": "red",
    "dispatch_skipped": "cyan",
    "dispatch_cancelled": "magenta",
    "live": "bold",
}
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
    )
    return " ".join(f"{name}={value[name]}" for name in names if value.get(name) is not None)


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
                "happenings": [_entry(happening) for happening in dispatch.happenings],
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
