#!/bin/sh
# Spark asks each worker and executor for its resources; each has room for one Kafka broker.
echo '{"name": "broker", "addresses": ["0"]}'
