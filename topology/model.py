"""The vocabulary of a topology: topics, tables and stages as frozen values.

A topology is data.  Nothing here talks to a broker: `topology.check` proves that a set of values
fits together, `topology.provision` compares them with a cluster, and the stage runtime, the
in-memory driver and the auditor all read the same declarations.

Source: DESIGN "Topics" and "Roles".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

APPLICATION = "harn"
"""Prefix of every consumer group and transactional id."""

# Kinds that the runtime itself appends to any mailbox.
TICK = "tick"
STAGE_SKIP = "stage_skip"
STAGE_RESUME = "stage_resume"
RUNTIME_KINDS: tuple[tuple[str, str], ...] = (
    (TICK, "tick"),
    (STAGE_SKIP, "stage_skip"),
    (STAGE_RESUME, "stage_resume"),
)


class Cleanup(StrEnum):
    """What the broker may remove from a topic."""

    DELETE = "delete"
    COMPACT = "compact"


class TopicRole(StrEnum):
    """Why a topic exists; it decides timestamps, retention and who may write."""

    MAILBOX = "mailbox"  # the one source of a stage
    INTENT = "intent"  # asks an executor to do something
    OUTPUT = "output"  # what a stage decided, for people and for audit
    REQUEST = "request"  # written by the outside world, read by an edge
    QUEUE = "queue"  # jobs, their claims, responses and deliveries
    CATALOG = "catalog"  # latest value per key
    CHANGELOG = "changelog"  # rows of a table
    JOURNAL = "journal"  # one record a transaction
    CHECKPOINT = "checkpoint"  # full rows of a partition
    LEGACY = "legacy"  # read, never written


class PartitionRule(StrEnum):
    """How many partitions a topic has, when the number comes from settings."""

    MAILBOX = "mailbox"  # N = HARN_PARTITIONS
    TURNS = "turns"  # AGENT_TURNS_PARTITIONS


class RetentionRule(StrEnum):
    """Which setting bounds a topic's age."""

    MAILBOX = "mailbox"
    OUTPUT = "output"
    AUDIT = "audit"
    SHORT = "short"  # an hour: cancel intents
    FOREVER = "forever"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic, or with `{...}` in its name one family of topics.

    `kinds` maps the wire kind (header `kind`) to the schema of its value, without namespace.  A
    topic without kinds belongs to a stage that is not part of this release: it is provisioned, so
    that a cluster is laid out once.  `co_partitioned_with` names the topic whose partition numbers
    this one's writers use, so that both must have as many.
    """

    name: str
    role: TopicRole
    key: str
    doc: str
    partitions: int | PartitionRule = PartitionRule.MAILBOX
    cleanup: Cleanup = Cleanup.DELETE
    retention: RetentionRule = RetentionRule.OUTPUT
    kinds: tuple[tuple[str, str], ...] = ()
    co_partitioned_with: str | None = None

    @property
    def is_family(self) -> bool:
        """Whether the name is a pattern such as `worker.{queue}.claims`."""
        return "{" in self.name

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamps records: one clock orders each mailbox partition."""
        return self.role is TopicRole.MAILBOX


@dataclass(frozen=True, slots=True, kw_only=True)
class RowType:
    """One kind of row in a table; its keys start with `<prefix>:`, or equal `<prefix>`.

    When `due_field` is set, a row whose field is not null is a timer: the stage's `on_due` is
    called with it once stream time reaches the value (ms).  `ticking` timers make the owner append
    a tick when no traffic moves time; the others wait for traffic.

    What a partition's rows come to stands beside its position, so that it can be told without
    reading them: of rows with a `tally_field` how many have each of its values, of one that is
    `told` its numbers.  Rows with a `tally_field` have a `due_field`, one that is `told` has the
    prefix as its key.
    """

    prefix: str
    schema: str
    doc: str
    due_field: str | None = None
    ticking: bool = True
    tally_field: str | None = None
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A stage's rows.  A table is a cache of fold(log): it can be dropped and rebuilt."""

    name: str
    rows: tuple[RowType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A declared step: one source mailbox, its sinks, one table, one fold version.

    `role` is the process role that runs it and, with the application prefix, its consumer group
    `harn.<role>`.  `version` changes whenever the fold would answer differently to the same log.
    """

    name: str
    version: int
    role: str
    source: str
    sinks: tuple[str, ...]
    table: Table
    quarantine: str
    doc: str
    family_sinks: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The consumer group of the role that runs the stage."""
        return f"{APPLICATION}.{self.role}"

    @property
    def changelog(self) -> str:
        """Name of the topic that holds the table's rows."""
        return f"{self.role}-{self.table.name}-changelog"

    @property
    def fold_id(self) -> str:
        """`<stage>@<version>`, as written into the header `fold` and the journal."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A declared place where the world is met: reads topics, performs effects, writes outcomes.

    `reads_in_group` are shared among the members of the group `harn.<name>`; `reads` are read
    whole by every member, without a group.  `writes` are written without transactions, unless it is
    `transactional`.
    `watched_groups` are asked for their members and offsets, and never joined.
    A family among any of them stands for all its topics; `creates` are families of which it makes
    the topics that are missing.
    `foreign_groups` begins the names of the groups in which it reads topics that are not ours; who
    may read those is their owners' business.
    `known_group` is its group's name where users know it by one; `transactional` edges write what
    belongs to a partition that they read in transactions, with ids that begin with the group.
    `sets_group` edges say how long their own group waits for a silent member.
    `examines` is for one that looks at the whole application: the settings of every topic, and how
    far every group is.
    """

    name: str
    writes: tuple[str, ...]
    doc: str
    reads_in_group: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    watched_groups: tuple[str, ...] = ()
    creates: tuple[str, ...] = ()
    foreign_groups: str | None = None
    known_group: str | None = None
    transactional: bool = False
    sets_group: bool = False
    examines: bool = False

    @property
    def group(self) -> str:
        """The consumer group of the edge's members."""
        return self.known_group or f"{APPLICATION}.{self.name}"

    @property
    def transactional_prefix(self) -> str:
        """What the ids of its transactions begin with; the partition follows."""
        return f"{self.group}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """All topics, stages and edges of an application."""

    topics: tuple[Topic, ...]
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...] = ()
    kinds: dict[tuple[str, str], str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the schema of every (topic, kind)."""
        mailboxes = {stage.source for stage in self.stages}
        kinds: dict[tuple[str, str], str] = {}
        for topic in self.topics:
            for kind, schema in topic.kinds:
                kinds[topic.name, kind] = schema
            if topic.name in mailboxes:
                kinds.update({(topic.name, kind): schema for kind, schema in RUNTIME_KINDS})
        object.__setattr__(self, "kinds", kinds)

    def topic(self, name: str) -> Topic:
        """Return the declaration of `name`; KeyError when it is not declared."""
        for topic in self.topics:
            if topic.name == name:
                return topic
        raise KeyError(name)

    def stage(self, name: str) -> Stage:
        """Return the declaration of stage `name`; KeyError when it is not declared."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)
