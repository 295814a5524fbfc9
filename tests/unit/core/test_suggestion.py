"""What a refusal says of what was meant, or is possible."""

from __future__ import annotations

from streams.core.provider_catalog import BUILT_KINDS, PROVIDERS, providers_of
from streams.core.suggestion import listed, near_to, no_export, suggestion


def test_of_many_the_first_are_named_and_the_rest_counted() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(number) for number in range(8)]) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert listed([str(number) for number in range(11)]).endswith("6, 7 and 3 more")


def test_what_is_near_is_suggested_and_else_what_there_is() -> None:
    assert suggestion("on-isue", ["on-issue", "other"]) == "; did you mean 'on-issue'?"
    assert suggestion("zzz", ["on-issue", "other"]) == "; known are on-issue, other"
    assert suggestion("zzz", []) == "; there is none"
    assert near_to("CRON", ["cron"]) == "; did you mean 'cron'?"
    assert not near_to("zzz", ["cron"])
    assert no_export("lb", {"lib": "lib.py"}) == "[exports] has no 'lb'; did you mean 'lib'?"


def test_only_providers_that_this_release_takes_are_offered() -> None:
    assert providers_of("stream") == ("kafka",)
    assert providers_of("cron") == ("cron",)
    assert providers_of("a2a-push") == ()
    offered = set(providers_of(None))
    assert offered == {name for kind in BUILT_KINDS for name in providers_of(kind)}
    assert offered < set(PROVIDERS)
