import re

import pytest

from streams.core.handler_uri import HandlerUri, parse_handler


@pytest.mark.parametrize(
    ("text", "module", "function"),
    [
        ("on_issue", "lib", "on_issue"),
        ("handlers::on_issue", "handlers", "on_issue"),
        ("  handlers::on_issue ", "handlers", "on_issue"),
    ],
)
def test_a_local_reference_names_a_module_and_a_function(
    text: str, module: str, function: str
) -> None:
    uri = parse_handler(text)
    assert (uri.kind, uri.module, uri.function) == ("local", module, function)
    assert uri.uri == uri.target == text.strip()


def test_a_uri_keeps_its_scheme_and_target() -> None:
    assert parse_handler("a2a://reviewer.prod/triage") == HandlerUri("a2a", "reviewer.prod/triage")
    assert parse_handler("worker://triage").uri == "worker://triage"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("a2a://", "is a2a:// with an empty target"),
        ("worker://", "is worker:// with an empty target"),
        ("smtp://relay", "has the scheme 'smtp', which is not implemented"),
        ("::fn", "'' is not the name of a module"),
        ("handlers::", "'' is not the name of a function"),
        ("on issue", "'on issue' is not the name of a function"),
        ("a::b::c", "'a::b' is not the name of a module"),
        ("lib::class", "'class' is not the name of a function"),
    ],
)
def test_a_malformed_handler_is_refused_by_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):  # vector 1-18
        parse_handler(text)
