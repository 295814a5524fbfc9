import json
import tomllib

import pytest

from streams.core.manifest import Manifest, parse_manifest
from streams.core.provider_catalog import SIGNED_WEBHOOKS
from streams.core.webhook import WebhookRoute, route_of


def trigger(
    provider: str = "github",
    path: str = '"/hook"',
    secrets: str = '{ signing_secret = "github/hook" }',
    trigger_id: str = "t",
) -> str:
    match = f"{{ path = {path} }}" if path else "{}"
    return f"""
[[triggers]]
id = "{trigger_id}"
kind = "webhook"
provider = "{provider}"
match = {match}
handler = "on_issue"
{f"secrets = {secrets}" if secrets else ""}
"""


def route(text: str) -> WebhookRoute:
    manifest = parse_manifest(tomllib.loads(text), "harn.toml")
    assert isinstance(manifest, Manifest), manifest
    found = route_of(manifest.bindings[0])
    assert found is not None
    return found


def problems(text: str) -> tuple[str, ...]:
    found = parse_manifest(tomllib.loads(text), "harn.toml")
    assert isinstance(found, tuple)
    return found


def fingerprint(text: str) -> str:
    manifest = parse_manifest(tomllib.loads(text), "harn.toml")
    assert isinstance(manifest, Manifest)
    return manifest.bindings[0]["fingerprint"]


def test_a_trigger_with_a_path_is_a_route_with_the_references_of_its_secrets() -> None:
    found = route(trigger())
    assert (found.path, found.provider, found.namespace) == ("hook", "github", "default")
    assert found.secrets == (("signing_secret", "github/hook"),)
    assert (found.allowed_origins, found.body_bytes_max) == ((), None)


@pytest.mark.parametrize("provider", SIGNED_WEBHOOKS)
def test_a_path_needs_the_secret_that_its_provider_signs_with(provider: str) -> None:
    [problem] = problems(trigger(provider, secrets=""))
    assert problem.startswith("harn.toml: [[triggers]] 1 (t): secrets.signing_secret is missing")
    assert f"{provider}/webhook-secret" in problem
    route(trigger(provider, secrets=f'{{ signing_secret = "{provider}/webhook-secret" }}'))


def test_a_trigger_without_a_path_needs_no_secret_and_may_have_some() -> None:
    for secrets in ("", '{ api = "github/api-key@v2" }'):
        text = trigger(path="", secrets=secrets)
        manifest = parse_manifest(tomllib.loads(text), "harn.toml")
        assert isinstance(manifest, Manifest)
        assert route_of(manifest.bindings[0]) is None


def test_a_secret_of_another_provider_s_namespace_is_refused() -> None:  # vector 1-16
    [problem] = problems(trigger(secrets='{ signing_secret = "slack/x" }'))
    assert problem.endswith(
        "secrets.signing_secret is of namespace 'slack', but the provider is 'github'"
    )


@pytest.mark.parametrize("reference", ['"hunter2"', '"a/b/c"', '"a/"', '"a/b@"', "7", '"a/b c"'])
def test_what_is_no_reference_is_refused_and_not_repeated(reference: str) -> None:
    found = problems(trigger(secrets=f"{{ signing_secret = {reference} }}"))
    assert any("secrets.signing_secret is no reference, expected <namespace>" in p for p in found)
    assert not any("hunter2" in problem for problem in found)


@pytest.mark.parametrize("path", ['"a//b"', '""', "7", '"../x"'])
def test_what_is_no_path_is_refused(path: str) -> None:
    [problem] = problems(trigger(path=path))
    assert "match.path is" in problem
    assert "expected a path such as /github/acme" in problem


def test_webhooks_that_nobody_can_check_are_refused() -> None:
    [problem] = problems(trigger("notion", secrets=""))
    assert "match.path cannot be used: this release checks webhooks of github" in problem
    assert "send events of 'notion' to /v1/events" in problem


def test_triggers_of_one_path_that_differ_in_their_secrets_are_refused() -> None:
    two = trigger() + trigger(trigger_id="u", secrets='{ signing_secret = "github/other" }')
    [problem] = problems(two)
    assert problem == (
        "harn.toml: triggers at webhook path 'hook' differ in provider or secrets: give each its "
        "own path"
    )


@pytest.mark.parametrize(
    ("origins", "size"),
    [("allowed_origins", "max_body_bytes"), ("allowed-origins", "max-body-bytes")],
)
def test_a_namespace_limits_its_webhooks_in_either_spelling(origins: str, size: str) -> None:
    table = f'[orchestrator]\n{origins} = ["https://B.example:8443", "*"]\n{size} = 1000\n'
    found = route(table + trigger())
    assert found.allowed_origins == ("*", "https://b.example:8443")
    assert found.body_bytes_max == 1_000


def test_limits_of_webhooks_are_part_of_a_definition_that_takes_them_and_of_no_other() -> None:
    table = "[orchestrator]\nmax_body_bytes = 1000\n"
    without = trigger(path="", secrets="")
    assert fingerprint(table + trigger()) != fingerprint(trigger())
    assert fingerprint(table + without) == fingerprint(without)


def test_one_limit_in_both_spellings_is_refused() -> None:
    table = "[orchestrator]\nmax_body_bytes = 1000\nmax-body-bytes = 1000\n"
    [problem] = problems(table + trigger())
    assert problem == (
        "harn.toml: orchestrator.max-body-bytes is 'max_body_bytes' once more: leave one of them "
        "out"
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('allowed_origins = ["example.com"]', "allowed_origins[0] is 'example.com', expected an"),
        ('allowed_origins = ["https://a/b"]', "allowed_origins[0] is 'https://a/b', expected an"),
        ('allowed_origins = "*"', "allowed_origins is '*', expected a list of origins"),
        ("max_body_bytes = 0", "max_body_bytes is 0, expected a whole number >= 1 and <= 300000"),
        ("max_body_bytes = 300001", "max_body_bytes is 300001, expected a whole number"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused(line: str, problem: str) -> None:
    [found] = problems(f"[orchestrator]\n{line}\n" + trigger())
    assert problem in found


def test_a_definition_says_only_references_of_secrets() -> None:
    manifest = parse_manifest(tomllib.loads(trigger()), "harn.toml")
    assert isinstance(manifest, Manifest)
    definition = json.loads(manifest.bindings[0]["definition"])
    assert definition["secrets"] == {"signing_secret": "github/hook"}
