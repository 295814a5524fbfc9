"""What operators see: log lines with constant event names, and metrics."""
