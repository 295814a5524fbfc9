"""How events come in: normalized, redacted, appended, and accepted only after the broker's ack."""
