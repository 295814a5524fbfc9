"""The gates: admission tests that a dispatch passes before its first attempt."""
