"""Agent turns on a database: where Kafka is not wanted, SQLite for one host, PostgreSQL for many."""
