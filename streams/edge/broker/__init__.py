"""A real single-node Kafka from packages alone, for laptops and tests."""
