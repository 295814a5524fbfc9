"""Python's cycle collector where records are worked on: looking seldom, for little is to be found.

A batch allocates some ten tracked objects a record and lets go of all of them without a cycle; what
was fetched and waits is tracked as well.  With the interpreter's default, a look every 700 new
objects, a third of a stage's processor time goes into looking (measured: 47 µs a record with it,
34 µs with a look every 50,000, 31 µs with none or as here).  What does form cycles are tasks and
exceptions, a few a batch: they wait a little longer, as some ten megabytes at most.

A worker is alike: a job is a task, a future and some forty objects that are let go of one by one.
So is the start of any command: of what a thousand modules define, nothing goes away.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 500_000
_YOUNG_LOOKS = 10
_MIDDLE_LOOKS = 10


def look_seldom() -> None:
    """Set the collector of this process; a process that has set it already keeps what is laxer."""
    if gc.get_threshold()[0] < _NEW_OBJECTS:
        gc.set_threshold(_NEW_OBJECTS, _YOUNG_LOOKS, _MIDDLE_LOOKS)
