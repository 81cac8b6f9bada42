"""The cluster's metadata, of which controller and brokers hold equal images. Pure.

`schemas` are the records of `__cluster_metadata` and `framing` their bytes; `replay` makes one `image` of the
other, with the `delta` between them; `registrations` are what an image has of a broker and of a partition.
"""
