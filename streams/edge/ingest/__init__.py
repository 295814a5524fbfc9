"""How events come in: normalized, redacted, appended, and answered for only after the broker's ack."""
