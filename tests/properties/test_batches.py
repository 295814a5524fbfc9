"""Where batches are cut and when memory is rebuilt changes nothing that anybody can see."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.engine import step as module
from tests.support.stage_log import StageLog, reloaded
from tests.support.toy import command, toy_stage

KEYS = st.sampled_from(["t:a", "t:b", "t:c", "l:a", "l:b", "p:a", "p:b"])
TEXTS = st.sampled_from(["x", "again:1", "again:3", "again:7"])
COMMANDS = st.one_of(
    st.builds(
        lambda key, due, text: command(
            "put", key, due_ms=due, text=text if due is not None else "x"
        ),
        KEYS,
        st.none() | st.integers(0, 30),
        TEXTS,
    ),
    st.builds(lambda key: command("delete", key), KEYS),
    st.builds(lambda key: command("show", key), KEYS),
    st.builds(lambda prefix: command("list", prefix), st.sampled_from(["t:", "p:", ""])),
    st.just(command("emit", "k", count=3)),
    st.just(command("reject")),
)
BAD = st.sampled_from([b"", b"garbage"])
# The broker's clock may be set back: stream time may not.
STEPS = st.lists(st.tuples(st.integers(-3, 4), COMMANDS | BAD), min_size=1, max_size=40)
CUTS = st.lists(st.integers(1, 12), min_size=1, max_size=8)
RELOADS = st.frozensets(st.integers(0, 40), max_size=8)


def written(steps: list[tuple[int, Any]]) -> StageLog:
    log = StageLog(toy_stage())
    log.now_ms = 0
    for after_ms, what in steps:
        log.now_ms += after_ms
        if isinstance(what, bytes):
            log.add_raw(what)
        else:
            log.add("command", what)
    return log


@given(STEPS, CUTS, RELOADS)
@settings(max_examples=150)
def test_cuts_and_reloads_change_no_output_row_or_timer(
    steps: list[tuple[int, Any]], cuts: list[int], reload_at: frozenset[int]
) -> None:
    log = written(steps)
    log.assert_replays(cuts, reload_at)
    log.assert_replays([1], reload_at)


@given(STEPS, st.integers(1, 3))
@settings(max_examples=50)
def test_neither_do_the_limits_of_a_batch(steps: list[tuple[int, Any]], outputs_max: int) -> None:
    log = written(steps)
    before, module._CUT_OUTPUTS = module._CUT_OUTPUTS, outputs_max
    try:
        log.assert_replays([100])
    finally:
        module._CUT_OUTPUTS = before


@given(STEPS)
@settings(max_examples=50)
def test_a_rebuilt_memory_hashes_and_counts_as_the_one_that_lived(
    steps: list[tuple[int, Any]],
) -> None:
    memory = written(steps).memory
    again = reloaded(memory)
    assert again.position == memory.position
    assert again.state.index == toy_stage().fold.build_index(memory.state)
    for prefix in ("t", "l"):
        assert again.rows.count(prefix) == memory.rows.count(prefix)
        assert again.rows.oldest(prefix) == memory.rows.oldest(prefix)


@given(STEPS, st.data())
@settings(max_examples=50)
def test_the_chain_of_a_log_with_the_same_cuts_is_the_same_and_of_another_log_is_not(
    steps: list[tuple[int, Any]], data: st.DataObject
) -> None:
    log = written(steps)
    chains = [step.position.chain for step in log.steps]
    assert [step.position.chain for step in log.replay([1]).steps] == chains
    at = data.draw(st.integers(0, len(log.records) - 1))
    spoiled = log.records[at]
    log.records[at] = spoiled._replace(key=b"forged")
    spoiled_chains = [step.position.chain for step in log.replay([1]).steps]
    assert spoiled_chains[:at] == chains[:at]
    assert all(a != b for a, b in zip(spoiled_chains[at:], chains[at:], strict=True))
