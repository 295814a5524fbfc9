"""What operators see: log lines with constant event names, and metrics in a registry that is passed in."""
