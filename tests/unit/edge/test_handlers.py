import asyncio
from pathlib import Path
from textwrap import dedent

import pytest

from streams.edge.handlers import Handlers, load_manifest
from streams.errors import ManifestError
from streams.handler_api import Context, Event

CONTEXT = Context(
    attempt=2,
    attempt_id="d.2",
    dispatch_id="d",
    trigger_id="a",
    binding_key="a@v1",
    event_id="e",
)
EVENT = Event({"id": "e", "provider": "github", "kind": "push"})


def write(folder: Path, handlers: list[str], exports: str = "", **files: str) -> Path:
    """A manifest with a trigger per handler, and Python files beside it."""
    tables = [
        f'[[triggers]]\nid = "t{index}"\nkind = "webhook"\nprovider = "github"\n'
        f'match = {{}}\nhandler = "{handler}"\n'
        for index, handler in enumerate(handlers)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "harn.toml").write_text(f"[exports]\n{exports}\n" + "".join(tables))
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))
    return folder


def load(folder: Path) -> Handlers:
    return Handlers.load(load_manifest(folder))


def problems(folder: Path) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        load(folder)
    return caught.value.problems


def call(folder: Path, reference: str) -> object:
    handler = load(folder).resolve(reference)
    assert handler is not None
    return handler(EVENT, CONTEXT)


# ---------------------------------------------------------------------- the manifest's file
def test_a_folder_stands_for_its_manifest(tmp_path: Path) -> None:
    folder = write(tmp_path, ["fn"], lib="def fn(event): ...")
    assert load_manifest(folder).bindings == load_manifest(folder / "harn.toml").bindings


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no such file, expected a manifest"),
        (b"[[triggers", "is not TOML: "),
        (b"id = '\xff'", "byte 6 is not UTF-8"),
        (b"nonsense = 1", "nonsense is not a key here"),
        (b"x = " + b"[" * 5_000, "lists or tables are nested too deeply"),
        (b"# nothing yet\n", "is empty, expected [[triggers]], or `triggers = []`"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_by_path(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "harn.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: File name too long"):
        load_manifest(tmp_path / ("x" * 5_000))


def test_a_byte_order_mark_is_no_part_of_a_manifest(tmp_path: Path) -> None:
    folder = write(tmp_path, ["fn"], lib="def fn(event): ...")
    path = folder / "harn.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_manifest(folder).bindings


# ---------------------------------------------------------------------- resolution
def test_a_bare_name_is_a_function_of_lib_beside_the_manifest(tmp_path: Path) -> None:
    folder = write(tmp_path, ["fn"], lib="def fn(event): return event.kind")
    assert call(folder, "fn") == "push"


def test_an_export_is_a_file_relative_to_the_manifest(tmp_path: Path) -> None:
    folder = write(tmp_path, ["deep::fn"], exports='deep = "src/deep.py"')
    (folder / "src").mkdir()
    (folder / "src" / "deep.py").write_text("def fn(event): return 'deep'")
    assert call(folder, "deep::fn") == "deep"


def test_an_export_is_an_importable_module(tmp_path: Path) -> None:
    folder = write(tmp_path, ["paths::basename"], exports='paths = "posixpath"')
    assert load(folder).resolve("paths::basename") is not None


def test_files_beside_the_manifest_import_each_other_as_one_module(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        ["count", "other::read"],
        exports='other = "other_handlers.py"',
        lib="seen = []\ndef count(event): seen.append(1)",
        other_handlers="import lib\ndef read(event): return len(lib.seen)",
    )
    handlers = load(folder)
    count, read = handlers.resolve("count"), handlers.resolve("other::read")
    assert count is not None
    assert read is not None
    count(EVENT, CONTEXT)
    assert read(EVENT, CONTEXT) == 1


def test_a_file_that_shares_its_name_with_another_module_is_still_the_one_beside(
    tmp_path: Path,
) -> None:
    folder = write(
        tmp_path, ["json::fn"], exports='json = "json.py"', json="def fn(event): return 'ours'"
    )
    assert call(folder, "json::fn") == "ours"


def test_two_manifests_in_one_process_keep_their_own_lib(tmp_path: Path) -> None:
    first = write(tmp_path / "first", ["fn"], lib="def fn(event): return 1")
    second = write(tmp_path / "second", ["fn"], lib="def fn(event): return 2")
    assert (call(first, "fn"), call(second, "fn"), call(first, "fn")) == (1, 2, 1)


def test_an_unknown_reference_resolves_to_nothing_which_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path, ["fn"], lib="def fn(event): ...\ndef bad(): ...\nconstant = 1")
    handlers = load(folder)
    for reference in ("other", "nope::fn", "bad", "constant", "a b", ""):
        assert handlers.resolve(reference, "t") is None, reference
        assert handlers.resolve(reference, "t") is None, reference
    assert len(handlers) == 1
    told = [record for record in caplog.records if record.message == "handler_not_loaded"]
    assert [(record.__dict__["handler"], record.__dict__["trigger_id"]) for record in told][:2] == [
        ("other", "t"),
        ("nope::fn", "t"),
    ]
    assert len(told) == 6


def test_a_function_of_an_export_is_found_for_triggers_that_no_manifest_holds(
    tmp_path: Path,
) -> None:
    folder = write(
        tmp_path,
        ["fn"],
        'more = "more.py"',
        lib="def fn(event): ...\ndef other(event): return 1",
        more="async def third(event): return 2",
    )
    handlers = load(folder)
    other, third = handlers.resolve("other"), handlers.resolve("more::third")
    assert other is not None
    assert third is not None
    assert (other.is_async, third.is_async) == (False, True)
    assert handlers.resolve("other") is other


def test_an_export_that_no_trigger_needs_keeps_nobody_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(
        tmp_path, ["fn"], 'broken = "broken.py"', lib="def fn(event): ...", broken="1 / 0"
    )
    assert load(folder).resolve("fn") is not None
    [line] = [record for record in caplog.records if record.message == "export_not_loaded"]
    assert "ZeroDivisionError" in line.__dict__["reason"]
    with pytest.raises(ManifestError, match="ZeroDivisionError"):
        Handlers.load(load_manifest(folder), whole=True)


# ---------------------------------------------------------------------- the form of a handler
@pytest.mark.parametrize(
    ("text", "takes_context"),
    [
        ("def fn(event): return ()", False),
        ("def fn(event, context): return (context.attempt,)", True),
        ("def fn(event, context=None): return (context.attempt,)", True),
        ("def fn(event, limit=3): return ()", False),
        ("def fn(event, *, limit=3): return ()", False),
        ("def fn(*anything): return ()", False),
        ("class Fn:\n    def __call__(self, event): return ()\nfn = Fn()", False),
        ("from functools import partial\ndef f(a, event): return ()\nfn = partial(f, 1)", False),
    ],
)
def test_a_handler_takes_the_event_or_the_event_and_its_context(
    tmp_path: Path, text: str, takes_context: bool
) -> None:
    handler = load(write(tmp_path, ["fn"], lib=text)).resolve("fn")
    assert handler is not None
    assert (handler.is_async, handler.takes_context) == (False, takes_context)
    assert handler(EVENT, CONTEXT) == ((2,) if takes_context else ())


@pytest.mark.parametrize(
    "text",
    [
        "async def fn(event): return 1",
        "class Fn:\n    async def __call__(self, event): return 1\nfn = Fn()",
        "from functools import partial\nasync def f(a, event): return 1\nfn = partial(f, 1)",
    ],
)
def test_a_coroutine_function_is_async(tmp_path: Path, text: str) -> None:
    handler = load(write(tmp_path, ["fn"], lib=text)).resolve("fn")
    assert handler is not None
    assert handler.is_async
    assert asyncio.run(handler(EVENT, CONTEXT)) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("other = 1", "lib.py has no 'fn'"),
        ("fn = 3", "is int, expected a function"),
        ("def fn(): ...", "takes (), expected (event) or (event, context)"),
        ("def fn(a, b, c): ...", "takes (a, b, c), expected (event) or (event, context)"),
        ("def fn(*, event): ...", "takes (*, event), expected (event) or (event, context)"),
        ("def fn(event): yield 1", "is a generator"),
        ("async def fn(event): yield 1", "is a generator"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_at_load(
    tmp_path: Path, text: str, problem: str
) -> None:
    [found] = problems(write(tmp_path, ["fn"], lib=text))
    assert found.startswith(f"{tmp_path}/harn.toml: [[triggers]] 1 (t0): handler 'fn': ")
    assert problem in found


# ---------------------------------------------------------------------- modules that do not load
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = (", "raised SyntaxError: '(' was never closed in {folder}/lib.py:1"),
        ("import no_such_module", "raised ModuleNotFoundError: No module named 'no_such_module'"),
        ("\nraise ValueError('at import')", "raised ValueError: at import in {folder}/lib.py:2"),
        ("import sys\nsys.exit(3)", "raised SystemExit: 3 in {folder}/lib.py:2"),
    ],
)
def test_a_module_that_raises_is_told_with_the_line_that_did(
    tmp_path: Path, text: str, problem: str
) -> None:
    [found] = problems(write(tmp_path, ["fn", "other"], lib=text))
    assert found.startswith(f"{tmp_path}/harn.toml: exports.lib is 'lib.py', which ")
    assert problem.format(folder=tmp_path) in found


def test_everything_that_cannot_be_loaded_is_told_at_once(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        ["missing", "nowhere::fn", "gone::fn", "gone::other", "fn"],
        exports='nowhere = "no_such.package"\ngone = "gone.py"',
        lib="def fn(event): ...",
    )
    found = problems(folder)
    assert len(found) == 3, "one per module that does not load, one per handler that is not there"
    assert "(t0): handler 'missing': lib.py has no 'missing'" in found[0]
    assert "exports.nowhere is 'no_such.package', which raised ModuleNotFoundError" in found[1]
    assert f"exports.gone is 'gone.py', but there is no file {tmp_path}/gone.py" in found[2]


# ---------------------------------------------------------------------- where a handler runs
def write_placed(folder: Path, functions: str, *triggers: str) -> Path:
    """A manifest whose triggers `t0`, `t1` … have further lines each."""
    common = 'kind = "webhook"\nprovider = "github"\nmatch = {}'
    tables = [
        f'[[triggers]]\nid = "t{index}"\n{common}\n{more}\n' for index, more in enumerate(triggers)
    ]
    (folder / "harn.toml").write_text("".join(tables))
    (folder / "lib.py").write_text(dedent(functions))
    return folder


def test_two_triggers_may_run_one_function_in_two_places(tmp_path: Path) -> None:
    folder = write_placed(
        tmp_path,
        "def fn(event): ...",
        'handler = "fn"\nexecutor = "process"',
        'handler = "fn"',
    )
    handlers = load(folder)
    placed, other = handlers.resolve("fn", "t0"), handlers.resolve("fn", "t1")
    assert placed is not None
    assert other is not None
    assert (placed.runs_in, other.runs_in) == ("process", "thread")
    assert placed.place is not None
    assert (placed.place.base_dir, placed.place.module) == (str(tmp_path.resolve()), "lib.py")
    assert placed.place.function == "fn"


def test_an_executor_that_does_not_fit_its_function_is_refused(tmp_path: Path) -> None:
    folder = write_placed(
        tmp_path,
        "def plain(event): ...\nasync def waits(event): ...",
        'handler = "plain"\nexecutor = "async"',
        'handler = "waits"\nexecutor = "thread"',
        'handler = "waits"\nexecutor = "process"',
        'handler = "waits"\nexecutor = "async"',
    )
    first, second = problems(folder)
    assert first.endswith(
        "[[triggers]] 1 (t0): executor is 'async', but plain is not async: use 'thread'"
    )
    assert second.endswith(
        "[[triggers]] 2 (t1): executor is 'thread', but waits is async: use 'async' or 'process'"
    )


# ---------------------------------------------------------------------- predicates
def test_a_predicate_is_found_as_handlers_are(tmp_path: Path) -> None:
    folder = write_placed(
        tmp_path,
        """
        def fn(event): ...
        def good(event) -> bool: return event.kind == "push"
        def quiet(event, context): return True
        """,
        'handler = "fn"\nwhen = "good"',
        'handler = "fn"\nwhen = "quiet"',
        'handler = "fn"\nwhen = "cel:event.kind == \'push\'"',
    )
    predicate = load(folder).resolve("good", "t0")
    assert predicate is not None
    assert predicate(EVENT, CONTEXT) is True
    assert len(load(folder)) == 3


def test_a_predicate_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    folder = write_placed(
        tmp_path,
        """
        def fn(event): ...
        def text(event) -> str: return "yes"
        def nothing() -> bool: return True
        def each(event): yield True
        """,
        'handler = "fn"\nwhen = "text"',
        'handler = "fn"\nwhen = "nothing"',
        'handler = "fn"\nwhen = "each"',
        'handler = "fn"\nwhen = "gone"',
    )
    text, nothing, each, gone = problems(folder)
    assert text.endswith("(t0): when 'text': returns str, expected (event) -> bool")
    assert "when 'nothing': takes () -> bool, expected (event) or (event, context)" in nothing
    assert "when 'each': is a generator, expected a function that returns its result" in each
    known = "known are fn, text, nothing, each"
    assert gone.endswith(f"(t3): when 'gone': lib.py has no 'gone'; {known}")


# ---------------------------------------------------------------------- all at once
def test_handlers_that_are_not_there_are_told_with_what_else_is_wrong(tmp_path: Path) -> None:
    folder = write(tmp_path, ["fn", "gn", "other::fn"], lib="def fn(event): ...")
    manifest = folder / "harn.toml"
    manifest.write_text(
        manifest.read_text()
        + '[[triggers]]\nid = "t3"\nkind = "nosuch"\nprovider = "github"\nmatch = {}\n'
        'handler = "worker://q"\nwhen = "hn"\n'
    )
    found = problems(folder)
    told = [problem.split("harn.toml: ")[1] for problem in found]
    assert told[0].startswith("[[triggers]] 3 (t2): handler is 'other::fn', but [exports] has no")
    assert told[1].startswith("[[triggers]] 4 (t3): kind is 'nosuch', expected one of webhook")
    assert told[2:] == [
        "[[triggers]] 2 (t1): handler 'gn': lib.py has no 'gn'; did you mean 'fn'?",
        "[[triggers]] 4 (t3): when 'hn': lib.py has no 'hn'; did you mean 'fn'?",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "triggers = 3",
        "triggers = [3]\n[exports]\nlib = 1",
        '[[triggers]]\nhandler = 3\nwhen = "::"',
    ],
)
def test_what_cannot_be_read_at_all_is_no_handler_to_look_for(tmp_path: Path, text: str) -> None:
    (tmp_path / "harn.toml").write_text(text)
    assert not any("has no" in problem for problem in problems(tmp_path))


def test_a_handler_that_sources_share_is_told_once_at_its_table(tmp_path: Path) -> None:
    folder = write(tmp_path, ["fn"], lib="def fn(event): ...")
    source = '[[triggers.sources]]\nkind = "webhook"\nprovider = "github"\nmatch = {}\n'
    manifest = folder / "harn.toml"
    manifest.write_text(
        f'{manifest.read_text()}[[triggers]]\nid = "many"\nhandler = "gn"\n{source}{source}'
        f'[[triggers]]\nid = "last"\nkind = "webhook"\nprovider = "github"\nmatch = {{}}\n'
        f'handler = "hn"\n'
    )
    [many, last] = problems(folder)
    assert "harn.toml: [[triggers]] 2 (many): handler 'gn'" in many
    assert "harn.toml: [[triggers]] 3 (last): handler 'hn'" in last
