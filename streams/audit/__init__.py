"""The auditor: recomputes what stages decided from the log alone, and compares it with what they wrote."""
