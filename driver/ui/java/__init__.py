"""Java sources that the driver's JVM compiles (`driver/spark/janino.py`)."""

from importlib.resources import files

__all__ = ["java_source"]


def java_source(class_name: str) -> str:
    return files(__name__).joinpath(f"{class_name}.java").read_text()
