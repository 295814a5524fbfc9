"""Every record of the application as a documented Avro schema, and what reads and compares them.

One `.avsc` file a record, all in the namespace `harn.streams`; the files here are the current
versions, those under `released/<version>/` are what each release wrote.

Source: DESIGN "Topics"; STYLE 2.13.
"""

from schemas.load import NAMESPACE, Schema, SchemaSet
from schemas.shape import SchemaError

__all__ = ["NAMESPACE", "Schema", "SchemaError", "SchemaSet"]
