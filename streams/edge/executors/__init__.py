"""Where a user's function runs: on the event loop, on a thread, or in a process of its own.

Light on purpose, apart from `runner`: the processes import this package and little else.
"""
