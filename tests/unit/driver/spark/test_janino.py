"""Java that is compiled in the driver while somebody presses Ctrl-C, which costs py4j its connections."""

from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from sparklog.driver.spark.janino import CompilationError, compiled
from tests.unit.driver.spark.java_virtual_machine import context_of


def thrown(class_name: str) -> Py4JJavaError:
    """Return what a call raises whose Java method throws."""
    exception = MagicMock(_target_id="o1")
    exception.getClass().getName.return_value = class_name
    exception.toString.return_value = class_name
    return Py4JJavaError("An error occurred while calling o0.cook.\n", exception)


def test_source_that_py4j_has_sent_twice_is_compiled() -> None:
    """A notebook cell interrupted at the start left the application without metrics, or without its tab."""
    context = context_of(MagicMock())
    compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook.side_effect = [thrown("java.lang.IllegalStateException")]
    assert compiled(context, "A", "class A {}") is compiler.getClassLoader().loadClass()


def test_compilation_whose_connection_is_lost_is_done_anew() -> None:
    """The JVM that closed it is there, and so is the next connection."""
    context = context_of(MagicMock())
    compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook.side_effect = [Py4JNetworkError("Answer from Java side is empty"), None]
    assert compiled(context, "A", "class A {}") is compiler.getClassLoader().loadClass()


def test_source_of_another_spark_is_refused() -> None:
    """Whoever wants the class does without, and says so."""
    context = context_of(MagicMock())
    compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook.side_effect = [thrown("org.codehaus.commons.compiler.CompileException")]
    with pytest.raises(CompilationError, match="CompileException"):
        compiled(context, "A", "class A {}")
