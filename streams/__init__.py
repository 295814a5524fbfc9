"""Turn events into work on Kafka: pure folds over ordered mailboxes, and the edges around them.

`core` decides and does nothing; `agents` run its folds on Faust; `edge` performs effects; `audit`
recomputes every decision from the log.  Importing this package does nothing.
"""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("harn-streams")
