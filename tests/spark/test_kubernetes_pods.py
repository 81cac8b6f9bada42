"""The pods of docs/deploy.md's recipes for Kubernetes, as Spark's own builders make them.

No cluster is asked: whether it would run them, and what becomes of the pods there, is not seen here.
"""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.spark.sessions import REPOSITORY

pytestmark = pytest.mark.long

PAGE: Final = REPOSITORY / "docs" / "deploy.md"
TIMEOUT_S: Final = 180
VOLUME: Final = "spark.kubernetes.executor.volumes.persistentVolumeClaim"
RESOURCE: Final = "spark.executor.resource.broker"
ADDRESS: Final = "spark.driver.host"
POD_NAME: Final = "spark.kubernetes.driver.pod.name"
POLICY_STEP: Final = "spark.kubernetes.driver.pod.excludedFeatureSteps"
GRACE_S: Final = 330
FOR_DRIVERS: Final = f"apiVersion: v1\nkind: Pod\nspec:\n  terminationGracePeriodSeconds: {GRACE_S}\n"
CLUSTER_MODE: Final = "### Cluster mode"
FOR_CLIENTS_OUTSIDE: Final = "  hostNetwork: true\n  dnsPolicy: ClusterFirstWithHostNet\n"


def section() -> str:
    """Return the page's part about Kubernetes."""
    found = re.search(r"^## Kubernetes.*?(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def recipe(template: Path) -> dict[str, str]:
    """Return the properties of the recipe's command, with the recipe's template in a file."""
    block = re.search(r"^    # executor\.yaml\n((?:    .*\n)+)", section(), re.MULTILINE)
    assert block is not None
    template.write_text(textwrap.dedent(block[1]))
    properties = dict(re.findall(r"--conf (\S+?)=(\S+)", section().partition(CLUSTER_MODE)[0]))
    assert properties["spark.kubernetes.executor.podTemplateFile"] == "executor.yaml"
    return {
        **properties,
        "spark.app.name": "sparklog",
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.kubernetes.executor.podTemplateFile": str(template),
    }


def of_cluster_mode(template: Path) -> dict[str, str]:
    """Return the properties of the recipe for cluster mode, with the driver's template in a file."""
    template.write_text(FOR_DRIVERS)
    properties = dict(re.findall(r"--conf (\S+?)=(\S+)", section().partition(CLUSTER_MODE)[2]))
    assert properties["spark.kubernetes.driver.podTemplateFile"] == "driver.yaml"
    return {**properties, "spark.kubernetes.driver.podTemplateFile": str(template)}


def claim_properties() -> dict[str, str]:
    """Return the recipe's properties of volumes that Spark claims on demand."""
    return dict(re.findall(rf"^ +({VOLUME}\S+?)=(\S+)$", section(), re.MULTILINE))


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The executor's pod of each case, all made by one JVM."""
    directory = tmp_path_factory.mktemp("kubernetes")
    properties = recipe(directory / "executor.yaml")
    outside = directory / "outside.yaml"
    outside.write_text((directory / "executor.yaml").read_text() + FOR_CLIENTS_OUTSIDE)
    existing = {
        f"{VOLUME}.{{name}}.options.claimName": "sparklog-SPARK_EXECUTOR_ID",
        f"{VOLUME}.{{name}}.mount.path": "/data",
    }
    driver = {
        **{key: value for key, value in properties.items() if key not in (ADDRESS, POD_NAME)},
        **of_cluster_mode(directory / "driver.yaml"),
        "spark.submit.deployMode": "cluster",
    }
    cases = {
        "driver": driver,
        "driver with Spark's policy": {key: value for key, value in driver.items() if key != POLICY_STEP},
        "recipe": properties,
        "clients outside": properties | {"spark.kubernetes.executor.podTemplateFile": str(outside)},
        "claims on demand": properties | claim_properties(),
        "existing claims": properties | {key.format(name="data"): value for key, value in existing.items()},
        "scratch": properties
        | {key.format(name="spark-local-dir-1"): value for key, value in existing.items()},
        "resource": properties | {f"{RESOURCE}.amount": "1"},
        "resource of a vendor": properties
        | {
            f"{RESOURCE}.amount": "1",
            f"{RESOURCE}.vendor": "example.com",
            f"{RESOURCE}.discoveryScript": "/d",
        },
    }
    rendered = subprocess.run(
        [sys.executable, "-m", "tests.spark.kubernetes_pods"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=REPOSITORY,
    )
    assert rendered.returncode == 0, rendered.stderr
    made: Mapping[str, Any] = json.loads(rendered.stdout)
    return made


def environment(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in pod["container"]["env"]}


def volumes(pod: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return each volume's place in the container, and its source."""
    places = {mount["name"]: mount["mountPath"] for mount in pod["container"]["volumeMounts"]}
    return {
        volume["name"]: (
            places[volume["name"]],
            {key: value for key, value in volume.items() if key != "name"},
        )
        for volume in pod["pod"]["spec"]["volumes"]
    }


def test_pod_of_the_recipe_has_the_image_and_room_for_a_broker(pods: Mapping[str, Any]) -> None:
    """The broker is outside the JVM's heap: without the overhead Kubernetes would end it."""
    container = pods["recipe"]["container"]
    assert container["image"] == "registry.example/spark-sparklog:0.1.0"
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "1536Mi"}
    assert container["resources"]["limits"] == {"memory": "1536Mi"}


def test_pod_of_the_recipe_finds_the_driver_by_its_service_and_is_found_by_its_own_address(
    pods: Mapping[str, Any],
) -> None:
    """A broker on 0.0.0.0 advertises what the driver knows of its executor, the pod's address."""
    known = environment(pods["recipe"])
    assert known["SPARK_DRIVER_URL"].startswith("spark://CoarseGrainedScheduler@sparklog:")
    assert known["SPARK_EXECUTOR_POD_IP"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert known["_SPARK_AUTH_SECRET"]


def test_pod_of_the_recipe_shares_no_node_with_another_executor(pods: Mapping[str, Any]) -> None:
    """The template's rule is about a label that Spark gives each executor's pod."""
    pod = pods["recipe"]["pod"]
    (rule,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_pod_for_clients_outside_has_the_address_of_its_node(pods: Mapping[str, Any]) -> None:
    """The pod's address, which the broker advertises, is then the node's."""
    spec = pods["clients outside"]["pod"]["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "hostNetwork" not in pods["recipe"]["pod"]["spec"]


def test_claim_on_demand_is_made_for_each_executor_and_is_no_scratch_space(pods: Mapping[str, Any]) -> None:
    """What `log.dirs=/data/sparklog` names is the claim, and Spark's own files are elsewhere."""
    pod = pods["claims on demand"]
    place, source = volumes(pod)["data"]
    (claim,) = pod["others"]
    assert place == "/data"
    assert source["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["metadata"]["name"].endswith("-exec-1-pvc-0")
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"] == {"storage": "100Gi"}
    assert not environment(pod)["SPARK_LOCAL_DIRS"].startswith("/data")


def test_existing_claim_is_named_after_the_executor_and_not_made(pods: Mapping[str, Any]) -> None:
    """A claim that the application does not make outlives it."""
    pod = pods["existing claims"]
    place, source = volumes(pod)["data"]
    assert (place, source["persistentVolumeClaim"]["claimName"]) == ("/data", "sparklog-1")
    assert pod["others"] == []


def test_volume_with_the_name_of_scratch_space_becomes_it(pods: Mapping[str, Any]) -> None:
    """The reason for another name: Spark removes what lies there with the executor."""
    assert environment(pods["scratch"])["SPARK_LOCAL_DIRS"] == "/data"


def test_resource_needs_a_vendor_and_is_a_limit_of_the_container(pods: Mapping[str, Any]) -> None:
    """Without one Spark makes no pod."""
    assert pods["resource"] == {"error": "Resource: broker was requested, but vendor was not specified."}
    limits = pods["resource of a vendor"]["container"]["resources"]["limits"]
    assert limits == {"memory": "1536Mi", "example.com/broker": "1"}


def other(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return what is made along with a pod, if there is one of the kind."""
    return next((each for each in pod["others"] if each["kind"] == kind), None)


def test_driver_of_cluster_mode_is_found_by_the_service_that_spark_makes(pods: Mapping[str, Any]) -> None:
    """`spark.driver.host:9092` is that Service's name; without an address of its own every port passes."""
    pod = pods["driver"]
    assert pod["pod"]["metadata"]["labels"]["sparklog"] == "orders"
    service = other(pod, "Service")
    assert service is not None
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= pod["pod"]["metadata"]["labels"].items()
    assert pod["properties"][ADDRESS] == f"{service['metadata']['name']}.default.svc"


def test_driver_of_cluster_mode_has_room_for_its_python_and_the_time_of_an_orderly_stop(
    pods: Mapping[str, Any],
) -> None:
    """The controller's process is outside the JVM's heap; a stop copies to the tier what is left."""
    pod = pods["driver"]
    assert pod["container"]["resources"]["limits"] == {"memory": "1792Mi"}
    assert pod["pod"]["spec"]["terminationGracePeriodSeconds"] == GRACE_S


def test_driver_of_cluster_mode_that_is_lost_is_started_by_nobody(pods: Mapping[str, Any]) -> None:
    """The reason to prefer a pod of one's own, which a Deployment or a Job starts again."""
    assert pods["driver"]["pod"]["spec"]["restartPolicy"] == "Never"


def test_policy_of_cluster_mode_would_keep_clients_from_the_brokers(pods: Mapping[str, Any]) -> None:
    """It lets in this application's pods alone, where the network has policies; the recipe leaves it out."""
    policy = other(pods["driver with Spark's policy"], "NetworkPolicy")
    assert policy is not None
    labels = pods["driver with Spark's policy"]["pod"]["metadata"]["labels"]
    application = {"spark-app-selector": labels["spark-app-selector"]}
    assert policy["spec"]["podSelector"]["matchLabels"] == {**application, "spark-role": "executor"}
    (ingress,) = policy["spec"]["ingress"]
    assert ingress == {"from": [{"podSelector": {"matchLabels": application}}]}
    assert other(pods["driver"], "NetworkPolicy") is None
