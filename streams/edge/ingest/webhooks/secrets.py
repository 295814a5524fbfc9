"""Secrets, read from files of one folder, as Kubernetes mounts them.

`github/webhook-secret` stands in the file `github.webhook-secret`, `github/webhook-secret@v2` in
`github.webhook-secret.v2`.  Each line of a file is a secret that counts: to rotate one, add the new
line, change the sender, then remove the old line.  Files are read again every few seconds.

Values go from here to the signature check, and nowhere else: no record, log line, error or answer
holds one.
"""

from __future__ import annotations

from pathlib import Path

from streams.core.webhook import parse_reference

__all__ = ["LINES_MAX", "SecretFiles", "SecretMissing"]

LINES_MAX = 8
"""Secrets of one reference: each delivery is compared with all of them."""

_BYTES_MAX = 16_384


class SecretMissing(LookupError):  # noqa: N818 - it names what was found
    """A reference leads to no secret; the text says why, without any content."""


class SecretFiles:
    """The secrets of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, reference: str) -> tuple[bytes, ...]:
        """Return the secrets of a reference, at least one.  Raises SecretMissing."""
        parts = parse_reference(reference)
        if parts is None:
            raise SecretMissing(f"{reference[:200]!r} is no reference to a secret")
        path = self._folder / ".".join(part for part in parts if part is not None)
        try:
            with path.open("rb") as file:
                text = file.read(_BYTES_MAX + 1)
        except OSError as error:
            raise SecretMissing(f"{path} cannot be read: {error.strerror}") from None
        if len(text) > _BYTES_MAX:
            raise SecretMissing(f"{path} is larger than {_BYTES_MAX} bytes")
        lines = [line for each in text.splitlines() if (line := each.strip())]
        if not 1 <= len(lines) <= LINES_MAX:
            raise SecretMissing(f"{path} has {len(lines)} lines, expected 1 to {LINES_MAX}")
        return tuple(lines)
