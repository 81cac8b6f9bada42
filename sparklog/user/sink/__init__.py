"""Exactly-once writes to a log from many tasks: the duties of tasks, driver and operator, and their order.

Tasks write in transactions of their own and leave them prepared. The driver makes one decision durable, which
names these transactions, and then ends them. `machine/` holds the protocols, without I/O; `client` carries
them out. The part that is Spark's is in `sparklog/user/dataframe/`.
"""
