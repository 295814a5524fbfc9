import pytest

from streams.core.webhook import PATH_CHARS_MAX, is_path, path_of, route_of, route_problem
from streams.core.wire import BindingDefinition
from streams.testing import binding
from tests.support.webhooks import with_path


@pytest.mark.parametrize(
    "path", ["github", "/github", "a/b/c", "team-1/hook.v2~x_y", "/..a", "x" * PATH_CHARS_MAX]
)
def test_a_path_is_plain_segments_between_slashes(path: str) -> None:
    assert is_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "//a",
        "a//b",
        "a/",
        ".",
        "a/../b",
        "a b",
        "a?b",
        "a%2fb",
        "ä",
        "a:b",
        "a\n",
        "x" * (PATH_CHARS_MAX + 1),
    ],
)
def test_what_a_client_would_change_is_no_path(path: str) -> None:
    assert not is_path(path)


def test_a_binding_with_a_path_is_part_of_a_route() -> None:
    found = route_of(with_path(binding("a"), "/github", max_body_bytes=5, allowed_origins=["*"]))
    assert found is not None
    assert (found.path, found.namespace, found.provider) == ("github", "default", "github")
    assert found.secrets == (("signing_secret", "github/hook"),)
    assert (found.allowed_origins, found.body_bytes_max) == (("*",), 5)


def test_a_binding_without_a_path_takes_no_deliveries() -> None:
    assert route_of(binding("a")) is None
    assert path_of({"match": {"path": 7}}) is None
    assert path_of({}) is None


@pytest.mark.parametrize(
    "definition",
    [
        "",
        "[]",
        '{"match":{"path":"x"},"secrets":[]}',
        '{"match":{"path":"x"},"ingress":1}',
        "[" * 100000,
    ],
)
def test_a_definition_that_no_manifest_gives_is_refused_not_raised(definition: str) -> None:
    strange: BindingDefinition = {**binding("a"), "definition": definition}
    problem = "trigger 'a': the definition is none of a manifest"
    assert route_problem([strange], []) == problem
    assert route_problem([with_path(binding("b"), "x")], [strange]) is None


def test_bindings_of_one_path_agree_on_provider_and_secrets() -> None:
    first, second = with_path(binding("a"), "hook"), with_path(binding("b"), "/hook")
    assert route_problem([first, second, binding("c")], []) is None
    for other in (
        with_path(binding("b", provider="slack"), "hook", "slack/hook"),
        with_path(binding("b"), "hook", "github/other"),
    ):
        problem = route_problem([first, other], [])
        assert problem is not None
        assert problem.startswith("triggers at webhook path 'hook' differ")


def test_a_path_belongs_to_one_namespace() -> None:
    mine = with_path(binding("a"), "hook")
    other = with_path(binding("b", namespace="other"), "hook")
    assert route_problem([mine], [other]) == "webhook path 'hook' belongs to namespace 'other'"
    assert route_problem([mine], [with_path(binding("b", namespace="other"), "hook2")]) is None
