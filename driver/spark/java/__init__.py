"""Java classes that the driver's JVM compiles from what lies here (`driver/spark/janino.py`)."""
