"""Java classes compiled in the driver's JVM from source text, without a jar to deploy.

Janino ships with Spark, which compiles its own queries with it. It knows Java about as of version 1.4 with
some later features: annotations and anonymous classes work, lambdas and inferred type arguments do not.
Scala's traits are interfaces to it, and their members have the names that `javap` shows.

Py4j finds a method by examining all methods of its class, and so fails on a class that refers to a missing
one (SparkEnv's, protobuf's): such classes are used within the Java source only.
"""

from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from sparklog.driver.spark.calls import answered, is_connection_lost

JavaObject: TypeAlias = Any


class CompilationError(Exception):
    """The source cannot be compiled here: another Spark has other classes, or no Janino."""


class NoPlaceError(Exception):
    """The application has no place for the class: no UI, no progress bar."""


def compiled(context: SparkContext, class_name: str, source: str) -> JavaObject:
    """Compile the Java text `source` and return the class of that full name; it may use Spark's classes.

    Takes some 100 ms the first time. Each call makes a new class, even of the same source.

    Raises:
        CompilationError: it does not compile.
        Py4JError: the JVM has ended.
    """
    return answered(lambda: _compiled(context, class_name, source))


def instance_of(context: SparkContext, java_class: JavaObject, *arguments: object) -> JavaObject:
    """Return a new object of a class with one public constructor, which must not have side effects."""

    def instance() -> JavaObject:
        java_virtual_machine: Any = context._jvm
        gateway: Any = context._gateway
        given = gateway.new_array(java_virtual_machine.java.lang.Object, len(arguments))
        for position, argument in enumerate(arguments):
            given[position] = argument
        return java_class.getConstructors()[0].newInstance(given)

    return answered(instance)


def _compiled(context: SparkContext, class_name: str, source: str) -> JavaObject:
    java_virtual_machine: Any = context._jvm
    try:
        compiler = java_virtual_machine.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(_spark_context(context).getClass().getClassLoader())
        _cook(compiler, source)
        return compiler.getClassLoader().loadClass(class_name)
    except Exception as error:  # py4j's, or a TypeError where there is no Janino
        if is_connection_lost(error):
            raise
        cause = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        raise CompilationError(f"{class_name} cannot be compiled by Spark's Janino: {cause}") from None


def _cook(compiler: JavaObject, source: str) -> None:
    """Compile, once: py4j repeats a call whose answer it loses."""
    try:
        compiler.cook(source)
    except Py4JJavaError as error:
        # A compiler that was given a source refuses another.
        if error.java_exception.getClass().getName() != "java.lang.IllegalStateException":
            raise


def _spark_context(context: SparkContext) -> JavaObject:
    java_context: Any = context._jsc
    return java_context.sc()
