"""The overview of a cluster in a terminal: `sparklog-top BOOTSTRAP`.

It knows an address and nothing else, so it asks what every Kafka client may ask: DescribeCluster, Metadata,
DescribeQuorum, ListOffsets, DescribeLogDirs, ListGroups, OffsetFetch. That works from wherever the cluster
is reached, with Spark's UI off or behind a proxy, and of Apache Kafka as well. What only a broker knows of
itself (request times, bytes out, the loop's lag) is in the Log tab and in the metrics; no broker names an
address of theirs to clients, and a configuration key of our own that did would be a second way to the same
figures. Rates are the differences of two looks at the offsets, so the first one has none.
"""
