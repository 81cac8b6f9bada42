"""Kafka's protocol on sockets: frames, versions, the listener that answers and the channels that ask.

Rule: nothing that came from a socket reaches kio's reader before `guard` has walked it, because the native
reader allocates whatever an array length claims.

- `guard`, `apis`, `versions`, `frames`: bytes and entities, no I/O.
- `listener`, `connection`, `dispatcher`, `routes`, `requests`: the side that answers, brokers and controller.
- `channel` (asyncio) and `blocking` (Spark tasks): the side that asks.
"""
