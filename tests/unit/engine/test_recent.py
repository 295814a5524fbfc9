from streams.engine import recent
from streams.engine.recent import ABSENT, RecentRows


def test_what_was_kept_last_is_known_and_what_is_not_there_too() -> None:
    rows = RecentRows()
    rows.keep("d:1", {"n": 1}, 10)
    rows.keep("d:1", {"n": 2}, 10)
    rows.keep("d:2", None, 0)

    assert rows.get("d:1") == {"n": 2}
    assert rows.get("d:2") is None
    assert rows.get("d:3") is ABSENT


def test_rows_are_forgotten_after_two_generations() -> None:
    rows = RecentRows()
    size = recent._GENERATION_BYTES // 10
    for number in range(15):
        rows.keep(f"d:{number}", {"n": number}, size)

    assert rows.get("d:14") == {"n": 14}
    assert rows.get("d:5") == {"n": 5}  # of the old generation

    for number in range(15, 30):
        rows.keep(f"d:{number}", {"n": number}, size)

    assert rows.get("d:5") is ABSENT
    assert len(rows) <= 20


def test_the_old_generation_never_contradicts_the_young_one() -> None:
    rows = RecentRows()
    rows.keep("d:1", {"n": "old"}, recent._GENERATION_BYTES)
    rows.keep("d:1", {"n": "new"}, 1)

    assert rows.get("d:1") == {"n": "new"}


def test_rows_without_content_are_bounded_as_well() -> None:
    rows = RecentRows()
    for number in range(100_000):
        rows.keep(f"d:{number}", None, 0)

    assert len(rows) <= 2 * (recent._GENERATION_BYTES // recent._ENTRY_BYTES + 1)
