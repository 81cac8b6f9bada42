"""Kafka's protocol on sockets: frames, versions, the listener of a server and the channels of clients.

Rule: nothing that came from a socket reaches kio's reader before `guard` has walked it, because the native
reader allocates as many items as an array length claims.

- `guard`, `apis`, `versions`, `frames`: bytes and entities, no I/O.
- `listener`, `connection`, `dispatcher`, `routes`, `requests`: servers, i.e. brokers and controller.
- `channel` (asyncio) and `blocking` (Spark tasks): clients.
"""
