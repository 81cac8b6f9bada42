"""The cluster's metadata, of which controller and brokers have equal images. Pure.

`schemas` are the records of `__cluster_metadata` and `framing` their encoding; `replay` turns one `image`
into the next, with the `delta` between them; `registrations` are the image's entries for a broker and for a
partition.
"""
