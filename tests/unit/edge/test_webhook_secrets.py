from pathlib import Path

import pytest

from streams.edge.ingest.webhooks.secrets import LINES_MAX, SecretFiles, SecretMissing
from streams.edge.ingest.webhooks.targets import targets_of
from streams.testing import binding
from tests.support.registry_records import Registry
from tests.support.webhooks import with_path


def write(folder: Path, name: str, text: bytes) -> None:
    (folder / name).write_bytes(text)


@pytest.mark.parametrize(
    ("reference", "file"),
    [("github/hook", "github.hook"), ("github/hook@v2", "github.hook.v2")],
)
def test_a_secret_is_the_line_of_its_file(tmp_path: Path, reference: str, file: str) -> None:
    write(tmp_path, file, b"  s3cret \r\n")
    assert SecretFiles(tmp_path).read(reference) == (b"s3cret",)


def test_each_line_is_a_secret_that_counts_up_to_the_bound(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(LINES_MAX)]
    write(tmp_path, "github.hook", b"\n\n".join(lines))
    assert SecretFiles(tmp_path).read("github/hook") == tuple(lines)
    write(tmp_path, "github.hook", b"\n".join([*lines, b"top-secret"]))
    with pytest.raises(SecretMissing, match=f"has {LINES_MAX + 1} lines, expected 1 to") as caught:
        SecretFiles(tmp_path).read("github/hook")
    assert "top-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "cannot be read: No such file"), (b"\n \n", "has 0 lines"), (b"x" * 16_385, "larger")],
)
def test_without_a_usable_file_it_is_said_why(tmp_path: Path, text: bytes | None, why: str) -> None:
    if text is not None:
        write(tmp_path, "github.hook", text)
    with pytest.raises(SecretMissing, match=why):
        SecretFiles(tmp_path).read("github/hook")


@pytest.mark.parametrize("reference", ["../etc/passwd", "a/../b", "hook", "a/b/c", "a/b@", ""])
def test_a_reference_leads_to_no_other_folder(tmp_path: Path, reference: str) -> None:
    with pytest.raises(SecretMissing, match="is no reference"):
        SecretFiles(tmp_path).read(reference)


# ---------------------------------------------------------------------- targets
def test_paths_of_active_bindings_have_their_keys(tmp_path: Path) -> None:
    write(tmp_path, "github.hook", b"one\ntwo\n")
    log = Registry()
    log.apply(with_path(binding("a"), "x"), with_path(binding("b"), "y"), binding("c"), revision=0)
    targets = targets_of(log.view().rows, SecretFiles(tmp_path))
    assert set(targets) == {"x", "y"}
    assert targets["x"].keys == (b"one", b"two")
    assert targets["x"].problem is None
    assert "one" not in repr(targets["x"])
    log.apply(with_path(binding("b"), "y"), revision=1)
    assert set(targets_of(log.view().rows, SecretFiles(tmp_path))) == {"y"}


@pytest.mark.parametrize(
    ("provider", "secret", "text", "problem"),
    [
        ("github", "github/gone", None, "cannot be read"),
        ("webhook", "webhook/hook", b"plain text", "a secret of webhook/hook cannot be used"),
    ],
)
def test_a_path_without_a_usable_secret_says_why_and_has_no_key(
    tmp_path: Path, provider: str, secret: str, text: bytes | None, problem: str
) -> None:
    if text is not None:
        write(tmp_path, secret.replace("/", "."), text)
    log = Registry()
    log.apply(with_path(binding("a", provider=provider), "x", secret), revision=0)
    target = targets_of(log.view().rows, SecretFiles(tmp_path))["x"]
    assert target.keys == ()
    assert target.problem is not None
    assert problem in target.problem
    assert "plain text" not in target.problem
