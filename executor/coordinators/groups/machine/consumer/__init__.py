"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members report their partitions.

Pure.
"""
