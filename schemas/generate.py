"""Write what follows from the schemas: `streams/core/wire.py` and `docs/schemas.md`.

`python -m schemas.generate` writes both, `--check` says which of them are out of date (exit code
1). Both depend on the `.avsc` files alone, so equal schemas give equal files.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from schemas.load import SchemaSet
from schemas.shape import (
    NO_DEFAULT,
    Array,
    Enum,
    Field,
    Map,
    Nullable,
    Primitive,
    RecordShape,
    Shape,
)

ROOT = Path(__file__).resolve().parents[1]
WIRE = ROOT / "streams" / "core" / "wire.py"
PAGE = ROOT / "docs" / "schemas.md"

_WIDTH = 100
_PYTHON = {"string": "str", "bytes": "bytes", "int": "int", "long": "int", "boolean": "bool"}

_WIRE_HEAD = '''\
"""The records of the application as types: what `Codec.decode` returns and `Codec.encode` takes.

Generated from `schemas/*.avsc` by `python -m schemas.generate`: change those, not this file.  Every
field is there after decoding; one with a default may be left out of a value that is encoded.
Sequences decode as lists and mappings as dicts; neither is ever changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict
'''

_PAGE_HEAD = """# Records

Every value on the wire is an Avro record of the namespace `harn.streams`, declared in `schemas/`;
this page is generated from those files by `python -m schemas.generate`. A field with a default may
be missing from what another release wrote. Which topic carries which record: `docs/topology.md`.

**Framing.** Without a schema registry, Avro's single-object encoding: the bytes `C3 01`, the
CRC-64-AVRO fingerprint of the schema's parsing canonical form (8 bytes, little-endian), the body.
With `SCHEMA_REGISTRY_URL`, Confluent's wire format: the byte `00`, the registry's id (4 bytes,
big-endian), the body. Readers take both. Subjects are `<topic>-<full record name>` (Confluent's
`TopicRecordNameStrategy`), since a topic carries several kinds of records.

**Same value, same bytes.** Map keys are written in order, and there are no floating-point fields,
so equal values have equal bytes; that is what the auditor compares.

**Change.** What was released stays: fields are added, with a default, and never renamed, removed or
changed in type; enum symbols are added, and an older reader sees the enum's default instead. A test
holds this, in both directions, against the copy of the last release (`schemas/released/`). Roll out
readers before writers: a reader knows the records of its own and earlier releases, of later ones
only with a registry.
"""


def wire_source(schemas: SchemaSet) -> str:
    """Return the text of `streams/core/wire.py`."""
    enums, records = _named_shapes(schemas)
    aliases = "\n".join(_alias(enum) for enum in enums)
    classes = "\n\n\n".join(_class(record) for record in records)
    return f"{_WIRE_HEAD}\n{aliases}\n\n\n{classes}\n"


def schemas_page(schemas: SchemaSet) -> str:
    """Return the text of `docs/schemas.md`."""
    enums, records = _named_shapes(schemas)
    stems = {schema.shape.name: schema.stem for schema in schemas.values()}
    parts = [_PAGE_HEAD, *(_record_section(record, stems) for record in records)]
    parts.append("## Enums\n\n| enum | symbols | default |\n|---|---|---|")
    page = "\n".join(parts)
    rows = "\n".join(
        f"| {enum.name} | `{'`, `'.join(enum.symbols)}` | `{enum.default}` |" for enum in enums
    )
    return f"{page}\n{rows}\n"


def main(arguments: list[str]) -> int:
    """Write both files, or with `--check` only compare them; return the exit code."""
    schemas = SchemaSet.load()
    wanted = {WIRE: wire_source(schemas), PAGE: schemas_page(schemas)}
    stale = [
        path
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if arguments == ["--check"]:
        if stale:
            sys.stderr.write(f"out of date: {names}; run: python -m schemas.generate\n")
        return 1 if stale else 0
    if arguments:
        sys.stderr.write("usage: python -m schemas.generate [--check]\n")
        return 2
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    sys.stdout.write(f"written: {names or 'nothing, all up to date'}\n")
    return 0


def _named_shapes(schemas: SchemaSet) -> tuple[list[Enum], list[RecordShape]]:
    """Return every enum and record that the schemas hold, nested ones included, by name."""
    found: dict[str, Enum | RecordShape] = {}

    def visit(shape: Shape) -> None:
        match shape:
            case Nullable():
                visit(shape.inner)
            case Array():
                visit(shape.items)
            case Map():
                visit(shape.values)
            case Enum():
                found[shape.name] = shape
            case RecordShape():
                found[shape.name] = shape
                for field in shape.fields:
                    visit(field.shape)
            case Primitive():
                pass

    for schema in schemas.values():
        visit(schema.shape)
    shapes = [found[name] for name in sorted(found)]
    return (
        [shape for shape in shapes if isinstance(shape, Enum)],
        [shape for shape in shapes if isinstance(shape, RecordShape)],
    )


def _alias(enum: Enum) -> str:
    symbols = [f'"{symbol}"' for symbol in enum.symbols]
    line = f"{enum.name} = Literal[{', '.join(symbols)}]"
    return line if len(line) <= _WIDTH else _broken(f"{enum.name} = Literal[", symbols, "]")


def _broken(head: str, items: Iterable[str], tail: str) -> str:
    """Lay items out one a line, as the formatter does with what does not fit on one."""
    return "\n".join([head, *(f"    {item}," for item in items), tail])


def _class(record: RecordShape) -> str:
    line = f'    """{record.doc}"""'
    if len(line) > _WIDTH:
        doc = textwrap.fill(record.doc, _WIDTH - 4, break_on_hyphens=False)
        body = textwrap.indent(doc, "    ")
        line = f'    """The record {record.name}.\n\n{body}\n    """'
    fields = "\n".join(f"    {field.name}: {_python(field.shape)}" for field in record.fields)
    return f"class {record.name}(TypedDict):\n{line}\n\n{fields}"


def _python(shape: Shape) -> str:
    match shape:
        case Primitive():
            return _PYTHON[shape.name]
        case Nullable():
            return f"{_python(shape.inner)} | None"
        case Array():
            return f"Sequence[{_python(shape.items)}]"
        case Map():
            return f"Mapping[str, {_python(shape.values)}]"
        case Enum() | RecordShape():
            return shape.name


def _record_section(record: RecordShape, stems: dict[str, str]) -> str:
    stem = stems.get(record.name)
    where = f"`schemas/{stem}.avsc`. " if stem else "Part of other records. "
    rows = "\n".join(_field_row(field) for field in record.fields)
    head = "| field | type | default | meaning |\n|---|---|---|---|"
    return f"## {record.name}\n\n{where}{record.doc}\n\n{head}\n{rows}\n"


def _field_row(field: Field) -> str:
    default = "" if field.default is NO_DEFAULT else f"`{_shown(field.default)}`"
    doc = field.doc.replace("|", "\\|")
    return f"| `{field.name}` | {_avro(field.shape)} | {default} | {doc} |"


def _shown(default: object) -> str:
    match default:
        case None:
            return "null"
        case bool():
            return str(default).lower()
        case _:
            return str(default)


def _avro(shape: Shape) -> str:
    match shape:
        case Primitive():
            return shape.name
        case Nullable():
            return f"{_avro(shape.inner)} or null"
        case Array():
            return f"array of {_avro(shape.items)}"
        case Map():
            return f"map of {_avro(shape.values)}"
        case Enum():
            return f"[{shape.name}](#enums)"
        case RecordShape():
            return f"[{shape.name}](#{shape.name.lower()})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
