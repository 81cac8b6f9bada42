"""Partitions on one broker: logs led and followed, the requests that read and write them.

`partition_leader` and `partition_follower` decide and touch nothing; `replica` joins such a machine to
its log; `replicas` holds every partition of the broker and follows the metadata image; the handlers
(`produce`, `fetch`, `list_offsets`, `offset_for_leader_epoch`, `delete_records`) answer requests.
"""
