"""The auditor: recomputes what stages decided, from the log alone, and compares what they wrote."""
