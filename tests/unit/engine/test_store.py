from streams.engine import MemoryStore


def test_a_batch_of_changes_is_made_with_its_position() -> None:
    store = MemoryStore({b"a": b"1", b"b": b"2"})
    store.apply([(b"a", None), (b"c", b"3"), (b"never", None)], b"position")
    assert dict(store.items()) == {b"b": b"2", b"c": b"3"}
    assert (store.get(b"a"), store.get(b"c"), len(store)) == (None, b"3", 2)
    assert store.position == b"position"


def test_rows_of_a_prefix_come_in_key_order() -> None:
    store = MemoryStore({b"p:b": b"2", b"q:a": b"3", b"p:a": b"1"})
    assert list(store.prefixed(b"p:")) == [(b"p:a", b"1"), (b"p:b", b"2")]
