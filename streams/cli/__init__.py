"""The `harn` command: one module per command group, assembled by `streams.cli.main`."""
