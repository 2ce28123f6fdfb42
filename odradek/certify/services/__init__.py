"""Services besides Kafka that a job uses: PostgreSQL, HTTP, TCP, files. Each is reached through a proxy of the certifier."""
