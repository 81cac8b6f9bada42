"""The driver's use of Spark: racks, slots, hosts, and the checks before a start."""
