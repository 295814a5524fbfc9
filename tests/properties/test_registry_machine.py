"""The registry's history: versions, states and revisions under random applies and ends."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.testing import binding
from tests.support.registry_log import RegistryLog

IDS = ["a", "b", "c"]
NOTES = ["1", "2", "3"]
NAMESPACES = ["one", "two"]
MANIFESTS = st.dictionaries(st.sampled_from(IDS), st.sampled_from(NOTES))
PARTITIONS = 2


class RegistryMachine(RuleBasedStateMachine):
    """Follows what was published as a stage would: that is what must come out."""

    def __init__(self) -> None:
        super().__init__()
        self.log = RegistryLog()
        self.revision = 0
        self.wanted: dict[str, dict[str, str]] = {name: {} for name in NAMESPACES}
        self.in_force: dict[str, dict[str, Any]] = {}
        self.draining: dict[str, tuple[int, set[int]]] = {}
        self.versions: dict[str, str] = {}  # binding key -> fingerprint, for ever
        self.dynamic: dict[str, tuple[str, str]] = {}  # trigger id -> namespace, note; in force
        self.applied = False  # once: the first apply also puts its policy in force
        self.by_itself: set[str] = set()  # ids whose live versions are dynamic

    def owner(self, trigger_id: str) -> str | None:
        """The namespace that has a version of the id that is not terminated."""
        owners = {
            row["binding"]["namespace"]
            for key, row in self.log.rows.items()
            if key.startswith(f"b:{trigger_id}@") and row["state"] != "terminated"
        }
        assert len(owners) <= 1
        return next(iter(owners), None)

    @rule(manifest=MANIFESTS, namespace=st.sampled_from(NAMESPACES), stale=st.booleans())
    def apply(self, manifest: dict[str, str], namespace: str, stale: bool) -> None:
        before = self.log.rows
        taken = [each for each in manifest if self.owner(each) not in {None, namespace}]
        taken += [each for each in manifest if self.owner(each) and each in self.by_itself]
        bindings = [binding(each, note=note) for each, note in manifest.items()]
        first, *others = self.log.apply(
            *bindings,
            namespace=namespace,
            expected_revision=self.revision + 1 if stale else self.revision,
        )
        if stale or taken or (manifest == self.wanted[namespace] and self.applied):
            expected = "conflict" if stale else "invalid" if taken else "unchanged"
            assert (first.kind, first.value["answer"]) == ("apply_answered", expected)
            assert self.log.rows == before
            return
        self.revision += 1
        self.wanted[namespace] = manifest
        self.applied = True
        self.by_itself -= set(manifest)
        assert first.value["revision"] == self.revision
        self.follow(first.value)
        for out in others:
            assert out.kind == "state_transition"
            assert out.value["from_state"] != out.value["to_state"]

    @rule(
        trigger_id=st.sampled_from(IDS),
        note=st.sampled_from(NOTES),
        namespace=st.sampled_from(NAMESPACES),
    )
    def register(self, trigger_id: str, note: str, namespace: str) -> None:
        known = [key for key in self.log.states if key.startswith(f"{trigger_id}@")]
        first, *_ = self.log.register(binding(trigger_id, note=note), namespace=namespace)
        if known:
            assert (first.kind, first.value["answer"]) == ("apply_answered", "invalid")
            return
        self.revision += 1
        self.dynamic[trigger_id] = (namespace, note)
        self.by_itself.add(trigger_id)
        self.follow(first.value)

    @rule(trigger_id=st.sampled_from(IDS), dynamic_only=st.booleans())
    def drain(self, trigger_id: str, dynamic_only: bool) -> None:
        held = [name for name in NAMESPACES if trigger_id in self.wanted[name]]
        known = [key for key in self.log.states if key.startswith(f"{trigger_id}@")]
        first, *_ = self.log.drain(trigger_id, dynamic_only=dynamic_only)
        if not known or (held and dynamic_only):
            assert first.value["answer"] == "invalid"
        elif not held and trigger_id not in self.dynamic:
            assert first.value["answer"] == "unchanged"
        else:
            self.revision += 1
            self.dynamic.pop(trigger_id, None)
            for name in held:
                self.wanted[name] = {k: v for k, v in self.wanted[name].items() if k != trigger_id}
            self.follow(first.value)

    def follow(self, published: dict[str, Any]) -> None:
        for key in published["drained"]:
            del self.in_force[key]
            self.draining[key] = (self.revision, set())
        for added in published["added"]:
            key = added["binding_key"]
            assert key == f"{added['trigger_id']}@v{added['version']}"
            assert key not in self.in_force
            before = self.versions.setdefault(key, added["fingerprint"])
            assert before == added["fingerprint"], "a version number means one definition for ever"
            self.in_force[key] = added
            self.draining.pop(key, None)

    @rule(place=st.integers(0, 9), partition=st.integers(0, PARTITIONS - 1), late=st.booleans())
    def end(self, place: int, partition: int, late: bool) -> None:
        keys = sorted(self.draining)
        if not keys:
            return
        key = keys[place % len(keys)]
        revision, ended = self.draining[key]
        outputs = self.log.end(key, revision - late, partitions=[partition], of=PARTITIONS)
        if late:
            assert outputs == []
            return
        ended.add(partition)
        if len(ended) == PARTITIONS:
            [out] = outputs
            assert (out.value["from_state"], out.value["to_state"]) == ("draining", "terminated")
            del self.draining[key]
        else:
            assert outputs == []

    @invariant()
    def what_is_in_force_is_what_was_wanted(self) -> None:
        found = {
            name: {
                each["trigger_id"]: each["fingerprint"]
                for each in self.in_force.values()
                if each["namespace"] == name
            }
            for name in NAMESPACES
        }
        expected = {
            name: {each: binding(each, note=note)["fingerprint"] for each, note in manifest.items()}
            for name, manifest in self.wanted.items()
        }
        for trigger_id, (name, note) in self.dynamic.items():
            expected[name][trigger_id] = binding(trigger_id, note=note)["fingerprint"]
        assert found == expected

    @invariant()
    def rows_say_the_same(self) -> None:
        states = self.log.states
        assert {key for key, state in states.items() if state == "active"} == set(self.in_force)
        assert {key for key, state in states.items() if state == "draining"} == set(self.draining)
        for trigger_id in IDS:
            versions = [key for key in states if key.startswith(f"{trigger_id}@")]
            gone = [key for key in versions if states[key] == "terminated"]
            assert len(gone) <= 2

    def teardown(self) -> None:
        self.log.assert_replays([4, 1, 2], reload_at=frozenset({1, 2, 6}))


RegistryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestRegistry = RegistryMachine.TestCase
