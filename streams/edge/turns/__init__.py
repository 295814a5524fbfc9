"""Agent turns without Kafka: SQLite for one host, PostgreSQL for many."""
