"""The topics that prove what stages did: the journal of their transactions, and checkpoints.

Source: DESIGN "Topics".  Names are the seeds'.
"""

from __future__ import annotations

from topology.model import RetentionRule, Topic, TopicRole

AUDIT_TOPICS: tuple[Topic, ...] = (
    Topic(
        name="audit.journal",
        role=TopicRole.JOURNAL,
        retention=RetentionRule.AUDIT,
        key="stage/partition",
        doc="One record per stage transaction, in the partition number of the stage's own.",
        kinds=(("journal_entry", "journal_entry"),),
    ),
    Topic(
        name="audit.checkpoints",
        role=TopicRole.CHECKPOINT,
        retention=RetentionRule.AUDIT,
        key="stage/partition",
        doc="Full rows of a partition with seq, offset and hashes.",
        kinds=(("checkpoint_part", "checkpoint_part"),),
    ),
)
