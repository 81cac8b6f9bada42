"""The overview of a cluster in a terminal: `sparklog-top BOOTSTRAP`.

It needs only an address, since it uses requests of any Kafka client: DescribeCluster, Metadata,
DescribeQuorum, ListOffsets, DescribeLogDirs, ListGroups, OffsetFetch. So it works wherever the cluster is
reachable, with Spark's UI off or behind a proxy, and with Apache Kafka as well. A broker's own metrics
(request times, bytes out, the loop's lag) are in the Log tab and the exported metrics; brokers do not give
clients the address of those, and a configuration key of our own for it would be a second way to the same
values. Rates are the differences of two looks at the offsets, so the first one has none.
"""
