"""Agent turns: serial units of work of a session, on any host; what of them needs no I/O."""
