"""The worker of agent turns on Kafka: group, claims, ends and offsets in one transaction each."""
