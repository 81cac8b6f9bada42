"""Java classes made in the driver's JVM from their source text, so that nobody has to deploy a jar.

Janino ships with Spark, which compiles its own queries with it. It knows Java about as of version 1.4 with
some of what came later: annotations and anonymous classes work, lambdas and inferred type arguments do not.
Scala's traits are interfaces to it, and their members have the names that `javap` shows.

Py4j finds a method by looking at all that its class has, and so fails on a class that names another one which
is not there (SparkEnv's, protobuf's): what has to do with such a class is done within the Java source.
"""

from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from sparklog.driver.spark.calls import answered, is_connection_lost

JavaObject: TypeAlias = Any


class CompilationError(Exception):
    """The source cannot be compiled here: another Spark has other classes, or no Janino."""


class NoPlaceError(Exception):
    """The application has nothing that the class could be put into: no UI, no progress bar."""


def compiled(context: SparkContext, class_name: str, source: str) -> JavaObject:
    """Return the class of that full name that the Java text `source` defines; it may use Spark's classes.

    Takes some 100 ms the first time. Each call makes a class of its own, even of the same source.

    Raises:
        CompilationError: it does not compile.
        Py4JError: the JVM is gone.
    """
    return answered(lambda: _compiled(context, class_name, source))


def instance_of(context: SparkContext, java_class: JavaObject, *arguments: object) -> JavaObject:
    """Return a new object of a class that has one public constructor, which does nothing else."""

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
    """Have the compiler compile, once: py4j sends a call again by itself if it loses the answer."""
    try:
        compiler.cook(source)
    except Py4JJavaError as error:
        # The compiler that was given a source has it, and takes no other.
        if error.java_exception.getClass().getName() != "java.lang.IllegalStateException":
            raise


def _spark_context(context: SparkContext) -> JavaObject:
    java_context: Any = context._jsc
    return java_context.sc()
