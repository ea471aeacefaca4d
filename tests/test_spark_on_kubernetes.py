"""The sample of Spark's executors in pods: its objects name each other, its role allows what Spark asks for, and its pods' processes make the sink.

No cluster was at hand. The API that Spark asks for pods is `clusters.kubernetes`; Spark is all itself.
"""

import os
import shutil
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from clusters.kubernetes import Kubernetes, kubernetes
from clusters.spark_cluster import free_port
from clusters.spark_support import PROJECT, cut, shop_lines, shop_spec
from frame.deployed import EXAMPLES, container_file, documents
from oracles.shop_truth import same_as_truth
from s3_server import BUCKET, S3Server, environment
from servers.bucket_sync import client

SAMPLE = EXAMPLES / "kubernetes" / "spark.yaml"
CREDENTIALS = "ebbtide-credentials"
MOUNTED = "/etc/spark"
ROOT, SOURCE = f"s3a://{BUCKET}/ebbtide", "landing/order_items"


def objects(text):
    return {made["kind"]: made for made in yaml.safe_load_all(text)}


def settings_of(sample):
    lines = sample["ConfigMap"]["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))


@pytest.fixture(scope="module")
def sample():
    return objects(SAMPLE.read_text())


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.37"])
def test_template_of_executors_fits_the_schema_of_kubernetes(sample, version):
    template = yaml.safe_load(sample["ConfigMap"]["data"]["executor.yaml"])
    # Spark adds the image.
    template["spec"]["containers"][0]["image"] = "any"
    kubernetes_validate.validate(template | {"metadata": {"name": "any", **template["metadata"]}}, version, strict=True)


def test_role_is_bound_to_the_account_of_the_driver(sample):
    pod = sample["Job"]["spec"]["template"]["spec"]
    account = sample["ServiceAccount"]["metadata"]["name"]
    binding = sample["RoleBinding"]
    [subject] = binding["subjects"]
    namespace = settings_of(sample)["spark.kubernetes.namespace"]
    assert pod["serviceAccountName"] == account
    assert subject == {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", sample["Role"]["metadata"]["name"])
    assert sample["ServiceAccount"].get("automountServiceAccountToken", True), "the driver asks Kubernetes for pods"


def test_executors_find_the_driver_by_the_service(sample):
    settings, service = settings_of(sample), sample["Service"]
    template = sample["Job"]["spec"]["template"]
    assert (
        settings["spark.driver.host"] == f"{service['metadata']['name']}.{settings['spark.kubernetes.namespace']}.svc"
    )
    assert service["spec"]["selector"] == template["metadata"]["labels"]
    [container] = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    asked = {
        name: int(settings[f"spark.{setting}.port"])
        for name, setting in (("driver", "driver"), ("blocks", "driver.blockManager"))
    }
    assert asked == ports


def test_driver_and_executors_have_one_image_with_a_program_of_each(sample):
    [container] = sample["Job"]["spec"]["template"]["spec"]["containers"]
    [other] = [made for made in documents() if made["kind"] == "StatefulSet"]
    images = {settings_of(sample)["spark.kubernetes.container.image"], container["image"]}
    assert images == {other["spec"]["template"]["spec"]["containers"][0]["image"]}
    copied = [text.split()[-2:] for name, text in container_file() if name == "COPY"]
    [program] = [Path(target) for source, target in copied if source == "examples/container/executor"]
    [environment] = [text for name, text in container_file() if name == "ENV"]
    assert f"/opt/ebbtide/{program.parent}" in environment.partition("PATH=")[2].split()[0].split(":")
    assert program.name == "executor", "Spark gives its pods this argument"
    assert os.access(EXAMPLES / "container" / "executor", os.X_OK)


def test_names_in_the_pods_are_those_of_the_sample(sample):
    settings = settings_of(sample)
    pods = [
        sample["Job"]["spec"]["template"]["spec"],
        yaml.safe_load(sample["ConfigMap"]["data"]["executor.yaml"])["spec"],
    ]
    for spec in pods:
        [container] = spec["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
        assert container["envFrom"] == [{"secretRef": {"name": CREDENTIALS}}]
    template = pods[1]["containers"][0]
    assert template["workingDir"] in {mount["mountPath"] for mount in template["volumeMounts"]}, (
        "the image is read-only"
    )
    [mapped] = [volume["configMap"]["name"] for volume in pods[0]["volumes"] if "configMap" in volume]
    assert mapped == sample["ConfigMap"]["metadata"]["name"]
    assert settings["spark.kubernetes.executor.podTemplateFile"] == f"{MOUNTED}/executor.yaml"


def in_words_of_here(replaced):
    """The sample's objects with words of this machine."""
    text = SAMPLE.read_text()
    for word, here in replaced.items():
        assert word in text, word
        text = text.replace(word, here)
    made = objects(text)
    data = made["ConfigMap"]["data"]
    spec = yaml.safe_load((PROJECT / "pipelines" / "defs" / "shop" / "orders" / "defs.yaml").read_text())
    spec["attributes"]["source"] |= {"path": f"s3a://{BUCKET}/{SOURCE}", "max_files_per_step": 2}
    data["defs.yaml"] = yaml.safe_dump(spec)
    return made


@contextmanager
def deployed(folder, variables):
    """The sample as `kubectl apply` leaves it; the first executor's container dies at its start."""
    port = free_port()
    replaced = {
        "k8s://https://kubernetes.default.svc": f"k8s://http://127.0.0.1:{port}",
        "order-items.default.svc": "127.0.0.1",
        "bindAddress                   0.0.0.0": "bindAddress 127.0.0.1",
        "s3a://lake/": f"s3a://{BUCKET}/",
        "7078": str(free_port()),
        "7079": str(free_port()),
        "instances                   4": "instances 2",
        "memory                      1g": "memory 512m",
        "cores                       2": "cores 1",
    }
    made = in_words_of_here(replaced)
    programs = folder / "bin"
    programs.mkdir()
    shutil.copy(EXAMPLES / "container" / "executor", programs)
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "XDG_CACHE_HOME") if name in os.environ}
    of_image = {**kept, "PATH": os.pathsep.join(path)}
    pods = folder / "pods"
    pods.mkdir()
    running = Kubernetes(pods, made["Role"]["rules"], of_image, {CREDENTIALS: variables}, crashes=["-exec-1"])
    with kubernetes(port, running):
        running.add("configmaps", made["ConfigMap"])
        job = made["Job"]["spec"]["template"]
        running.add(
            "pods",
            {"apiVersion": "v1", "kind": "Pod", **job, "metadata": {"name": "order-items-x7k2p", **job["metadata"]}},
        )
        yield running


@pytest.mark.grid
@pytest.mark.spark
def test_pods_of_the_sample_make_the_sink_with_no_more_rights_than_its_role_gives(sample, tmp_path, shell):
    with S3Server() as store, ExitStack() as pods:
        variables = environment(store.port)
        shell.export(**variables)
        for number, part in enumerate(cut(shop_lines("orders"), 3)):
            body = "\n".join(line.rstrip("\n") for line in part).encode()
            client().put_object(Bucket=BUCKET, Key=f"{SOURCE}/{number}.jsonl", Body=body)
        running = pods.enter_context(deployed(tmp_path, variables))
        code, said = running.wait_for("order-items-x7k2p")
        assert (code, running.refused) == (0, []), said
        left = [pod["metadata"]["name"] for pod in running.find("pods", {})]
        assert same_as_truth(shop_spec("orders", tmp_path), ROOT)
    assert left == ["order-items-x7k2p"], "Spark has removed its executors"
    executors = [pod for pod in running.posted if pod["metadata"]["name"] != "order-items-x7k2p"]
    assert len(executors) == 3, "one came for the one that died"
    rules = sample["Role"]["rules"]
    assert running.used == {
        (resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]
    }
    for pod in running.posted:
        own = tmp_path / "pods" / pod["metadata"]["name"]
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {path.name for path in own.iterdir()} <= {*volumes, "log"}, "an image is read-only"
    copies = {path.parents[1].name for path in tmp_path.glob("pods/*/cache/*.arrow")}
    assert copies & {pod["metadata"]["name"] for pod in executors}, "an executor has copies of its own"
