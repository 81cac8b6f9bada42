"""Spark's JVMs start in half the time when what they load comes out of one class-data archive (JEP 350)."""
