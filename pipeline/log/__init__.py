"""The log between collectors and workers: one interface (`protocol`), embedded in SQLite or on Kafka."""
