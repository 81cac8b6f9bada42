"""The pods that Spark would ask Kubernetes for, made by Spark's own builders; no cluster is asked.

    python -m tests.spark.kubernetes_pods < CASES > PODS

Standard input has a JSON object, Spark's properties by the name of each case. Standard output has one with
the executor's pod of each case as Kubernetes would get it, or with the error that Spark raises. A case with
`spark.submit.deployMode=cluster` has the driver's pod instead, and what Spark sets for the driver.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

DRIVER_PORT: Final = "7078"
"""Of this application: a driver has chosen one before it asks for executors."""
EXECUTOR: Final = "1"
MAIN: Final = "local:///opt/sparklog/jobs/serve.py"
PROPERTIES: Final = "/opt/sparklog/broker.properties"


def main() -> None:
    """Print the pods of the cases."""
    cases: Mapping[str, Mapping[str, str]] = json.load(sys.stdin)
    gateway = launch_gateway(conf=SparkConf(loadDefaults=False))
    try:
        pods = {name: _pod(gateway, properties) for name, properties in cases.items()}
    finally:
        gateway.shutdown()
    json.dump(pods, sys.stdout)


def _pod(gateway: Any, properties: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        if properties.get("spark.submit.deployMode") == "cluster":
            return _driver_pod(gateway, properties)
        return _executor_pod(gateway.jvm, properties)
    except Py4JJavaError as error:
        return {"error": str(error.java_exception.getMessage())}


def _executor_pod(jvm: Any, properties: Mapping[str, str]) -> Mapping[str, Any]:
    spark, fabric8 = jvm.org.apache.spark, jvm.io.fabric8.kubernetes.client
    conf = spark.SparkConf(False).set("spark.driver.port", DRIVER_PORT)
    for key, value in properties.items():
        conf.set(key, value)
    nothing = jvm.scala.Option.empty()
    settings = _scala_object(spark.internal.config, "package")
    security = spark.SecurityManager(conf, nothing, settings.AUTH_SECRET_FILE())
    security.initializeAuth()
    profiles = _scala_object(spark.resource, "ResourceProfile")
    profiles.clearDefaultProfile()
    # A client of no cluster: it reads templates.
    client = fabric8.KubernetesClientBuilder().withConfig(fabric8.Config.empty()).build()
    made = spark.scheduler.cluster.k8s.KubernetesExecutorBuilder().buildFromFeatures(
        spark.deploy.k8s.KubernetesExecutorConf(conf, "spark-application", EXECUTOR, nothing, 0),
        security,
        client,
        profiles.getOrCreateDefaultProfile(conf),
    )
    pod, others = made.pod(), made.executorKubernetesResources()

    def shown(entity: Any) -> Any:
        return json.loads(fabric8.utils.Serialization.asJson(entity))

    return {
        "pod": shown(pod.pod()),
        "container": shown(pod.container()),
        "others": [shown(others.apply(index)) for index in range(others.size())],
    }


def _driver_pod(gateway: Any, properties: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the driver's pod of cluster mode, with the Service before it."""
    jvm = gateway.jvm
    spark, fabric8 = jvm.org.apache.spark, jvm.io.fabric8.kubernetes.client
    conf = spark.SparkConf(False)
    for key, value in properties.items():
        conf.set(key, value)
    arguments = gateway.new_array(jvm.String, 1)
    arguments[0] = PROPERTIES
    made = spark.deploy.k8s.submit.KubernetesDriverBuilder().buildFromFeatures(
        spark.deploy.k8s.KubernetesDriverConf(
            conf,
            "spark-application",
            spark.deploy.k8s.submit.PythonMainAppResource(MAIN),
            "org.apache.spark.deploy.PythonRunner",
            arguments,
            jvm.scala.Option.empty(),
            jvm.org.apache.spark.util.SystemClock(),
        ),
        fabric8.KubernetesClientBuilder().withConfig(fabric8.Config.empty()).build(),
    )
    resources, system = made.driverKubernetesResources(), made.systemProperties()

    def shown(entity: Any) -> Any:
        return json.loads(fabric8.utils.Serialization.asJson(entity))

    return {
        "pod": shown(made.pod().pod()),
        "container": shown(made.pod().container()),
        "others": [shown(resources.apply(index)) for index in range(resources.size())],
        "properties": {key: str(system.apply(key)) for key in ("spark.driver.host",) if system.contains(key)},
    }


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


if __name__ == "__main__":
    main()
