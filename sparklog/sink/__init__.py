"""Writing to a log exactly once from many tasks: what tasks, driver and operator do, and in which order.

Tasks write in transactions of their own, which they leave prepared; the driver makes one decision durable,
that names them, and then ends them. `machine/` says what may be done when, without I/O; `client` carries it
out. What of it is Spark's is in `sparklog/dataframe/`.
"""
