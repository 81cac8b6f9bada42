"""A JVM that compiles whatever it is given, to one and the same object, as if Spark were there."""

from typing import Any
from unittest.mock import MagicMock


def context_of(java_object: Any) -> Any:
    """Return a SparkContext that runs; whatever class is compiled there, its instances are `java_object`."""
    context = MagicMock()
    context.version = "4.3.0"
    scala_context = context._jsc.sc.return_value
    scala_context.isStopped.return_value = False
    scala_context.ui.return_value.isEmpty.return_value = False
    class_loader = context._jvm.org.codehaus.janino.SimpleCompiler.return_value.getClassLoader.return_value
    constructors = class_loader.loadClass.return_value.getConstructors.return_value
    constructors.__getitem__.return_value.newInstance.return_value = java_object
    return context
