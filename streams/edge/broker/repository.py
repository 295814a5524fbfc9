"""One jar from a Maven repository: downloaded, and proven to be the one that is wanted.

Only the first start of all needs this, and what it imports takes its time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import requests
from jgo.maven import MavenContext

from streams.errors import BrokerError

__all__ = ["fetch"]

_ATTEMPTS = 3
_TIMEOUT_S = 30
_CHUNK_BYTES = 256 * 1024


def fetch(
    mirror: str | None, coordinate: str, sha256: str, path: Path, report: Callable[[int], None]
) -> Path:
    """Download a jar to `path`, prove by its checksum that it is the wanted one, return `path`.

    Args:   mirror: the repository to ask; None for the public one.
            coordinate: group:artifact:version.
            report: told the bytes that came, while they come; negative when they came in vain.
    Raises: BrokerError when it cannot be had, or is another.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            found = _download(_address(mirror, coordinate), path, report)
            break
        except requests.RequestException as error:
            gone = error.response is not None and error.response.status_code == HTTPStatus.NOT_FOUND
            if gone or attempt == _ATTEMPTS:
                raise BrokerError(
                    f"cannot fetch {coordinate} for the embedded Kafka: {_reason(error)}",
                    retryable=not gone,
                    remedy="check the network (only the first start needs it), set "
                    "HARN_MAVEN_REPOSITORY to a mirror, or KAFKA_BOOTSTRAP_SERVERS to a cluster",
                ) from error
    else:
        raise AssertionError("the last attempt returns or raises")
    if found != sha256:
        raise BrokerError(
            f"checksum of {coordinate} does not match: fetched SHA-256 {found}, expected {sha256}",
            retryable=False,
            remedy="do not use that repository: what it serves is not the published jar",
        )
    return path


def _address(mirror: str | None, coordinate: str) -> str:
    """Return where the jar is published; the public repository is the resolver's business."""
    context = MavenContext(remote_repos=None if mirror is None else {"mirror": mirror})
    (repository,) = context.remote_repos.values()
    group, artifact, version = coordinate.split(":")
    found = context.project(group, artifact).at_version(version).artifact()
    return f"{repository}/{found.component.path_prefix.as_posix()}/{found.filename}"


def _download(address: str, path: Path, report: Callable[[int], None]) -> str:
    """Write what is at `address` to `path` and return its SHA-256."""
    digest = hashlib.sha256()
    reported_bytes = 0
    try:
        with (
            requests.get(address, stream=True, timeout=_TIMEOUT_S) as answer,
            path.open("wb") as file,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                digest.update(chunk)
                report(len(chunk))
                reported_bytes += len(chunk)
    except requests.RequestException:
        report(-reported_bytes)
        raise
    return digest.hexdigest()


def _reason(error: requests.RequestException) -> str:
    """Say it in one line and without addresses: a client's own message is a paragraph of them."""
    if error.response is not None:
        return f"the repository answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT_S} s"
    if isinstance(error, requests.ConnectionError):
        return "the repository cannot be reached"
    return f"the download broke off ({type(error).__name__})"
