"""Benchmarks: this cluster beside Apache Kafka and Spark's Kafka connector, in one run, as ratios."""
