"""What the driver asks of Spark: racks, slots, hosts, and what must be true before a start."""
