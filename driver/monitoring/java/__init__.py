"""Java sources that the driver's JVM compiles (`driver/spark/janino.py`)."""
