"""Kafka's protocol as a library without I/O: entities and bytes, records, errors and ids."""
