"""Java classes that the driver's JVM compiles from what lies here (`driver/spark/janino.py`)."""

from importlib.resources import files

__all__ = ["java_source"]


def java_source(class_name: str) -> str:
    """Return the text of a class."""
    return files(__name__).joinpath(f"{class_name}.java").read_text()
