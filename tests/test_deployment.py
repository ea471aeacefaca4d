"""The samples of examples/container, kubernetes and systemd: judged by the field's own validators, and their commands run."""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from frame.deployed import (
    EBBTIDE,
    EXAMPLES,
    container_file,
    documents,
    named,
    pod_of,
    process_of_pod,
    process_of_unit,
    unit,
)
from frame.exit_codes import REFUSED, USAGE
from frame.parts import KUBECTL, SYSTEMD, needs
from frame.waiting import PATIENCE_S
from local.local_pipeline import up
from local.metrics_support import get, wait_for_step, write_spec
from servers.kafka_broker import free_port

from ebbtide import UpsertPipeline
from ebbtide.cli import main

ROOT = EXAMPLES.parent
BIN = Path(sys.executable).parent
VERSIONS = ("1.30", "1.33", "1.37")
NEEDS_A_PERSON = [USAGE, REFUSED]
MAINTENANCE = ("compact", "cleanup", "vacuum")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "document",
    [*documents(), *documents("spark.yaml")],
    ids=lambda found: f"{found['kind']}-{found['metadata']['name']}",
)
def test_object_fits_the_schema_of_kubernetes(document, version):
    kubernetes_validate.validate(document, version, strict=True)


def test_schemas_refuse_a_field_that_there_is_not():
    wrong = copy.deepcopy(named("StatefulSet"))
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 300
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@needs(KUBECTL)
def test_kustomization_gives_the_same_objects():
    made = subprocess.run(["kubectl", "kustomize", EXAMPLES / "kubernetes"], check=True, capture_output=True, text=True)

    def sorted_by_name(objects):
        return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))

    assert sorted_by_name(yaml.safe_load_all(made.stdout)) == sorted_by_name(documents())


@pytest.mark.parametrize("kind", ["StatefulSet", "CronJob"])
def test_names_in_a_pod_are_those_of_the_sample(kind):
    spec = pod_of(kind)["spec"]
    [container] = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["spec"]["configMap"]["name"] == named("ConfigMap")["metadata"]["name"]
    assert volumes["tables"]["persistentVolumeClaim"]["claimName"] == named("PersistentVolumeClaim")["metadata"]["name"]
    assert spec["serviceAccountName"] == named("ServiceAccount")["metadata"]["name"]
    text = json.dumps([container.get("command", []), container.get("args", [])])
    for mount in container["volumeMounts"]:
        if mount["name"] in ("spec", "tables"):
            assert mount["mountPath"] in text
    assert process_of_pod(kind).environment["EBBTIDE_CACHE"] in {m["mountPath"] for m in container["volumeMounts"]}


def test_service_probes_and_alerting_find_the_run():
    template = pod_of("StatefulSet")
    labels = template["metadata"]["labels"]
    assert named("Service")["spec"]["selector"] == labels == named("StatefulSet")["spec"]["selector"]["matchLabels"]
    affinity = pod_of("CronJob")["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity[0]["labelSelector"]["matchLabels"].items() <= labels.items()
    [container] = template["spec"]["containers"]
    [port] = container["ports"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert probes == [{"path": "/healthz", "port": port["name"]}] * 3
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


def test_exit_codes_that_need_a_person_start_nothing_again():
    job = named("CronJob")["spec"]["jobTemplate"]["spec"]
    [rule] = job["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", NEEDS_A_PERSON)
    assert rule["onExitCodes"]["containerName"] == job["template"]["spec"]["containers"][0]["name"]
    assert unit("ebbtide@.service")["RestartPreventExitStatus"] == [" ".join(map(str, NEEDS_A_PERSON))]


def test_no_secret_stands_in_the_samples():
    """Each comes from a Secret, by its name."""
    assert "Secret" not in {each["kind"] for each in documents()}
    for kind in ("StatefulSet", "CronJob"):
        [container] = pod_of(kind)["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "ebbtide-credentials"}}]
        assert not [name for name in process_of_pod(kind).environment if "PASSWORD" in name or "KEY" in name]


def test_spec_of_the_sample_is_usable(tmp_path):
    path = tmp_path / "defs.yaml"
    path.write_text(named("ConfigMap")["data"]["defs.yaml"])
    spec = UpsertPipeline.load(path)
    assert (spec.name, spec.source.properties["sasl.password"]) == ("orders", "${KAFKA_PASSWORD}")


def test_maintenance_is_the_same_three_commands_everywhere(tmp_path):
    script = process_of_pod("CronJob").command[-1].splitlines()
    units = [line.removeprefix("/opt/shop/.venv/bin/") for line in unit("ebbtide-maintenance@.service")["ExecStart"]]
    for lines in (script, units):
        assert [line.split()[:2] for line in lines] == [["ebbtide", name] for name in MAINTENANCE]
        for line in lines:
            _, name, *arguments = line.replace("/srv/ebbtide", str(tmp_path)).split()
            main.get_command(None, name).make_context(name, arguments)  # refuses options that there are not


@contextmanager
def started(process, environment):
    """Start a process of a sample, alone in its group; end it if the test has not."""
    running = subprocess.Popen(
        process.command,
        env={**os.environ, **environment, **process.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def followed_to(process, port, step):
    """Run a process of a sample until a step is made, as its probes see it; then end it as its manager does."""
    with started(process, {}) as running:
        wait_until_served(running, port)
        wait_for_step(port, step)
        status, _, text = get(port, "/healthz")
        assert (status, json.loads(text)["is_healthy"]) == (200, True)
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0, said
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, 0)
    return [json.loads(line) for line in said.splitlines() if '"step finished"' in line]


def wait_until_served(running, port):
    """Wait for the line that says where the metrics are."""
    first = running.stdout.readline()
    assert json.loads(first)["message"].endswith(f":{port}/metrics"), first


def test_pod_is_probed_ended_by_sigterm_and_goes_on(make, tmp_path):
    pipeline = make(engine="local")
    write_spec(pipeline, tmp_path)
    port = free_port()
    mounts = {
        "/etc/ebbtide/orders": str(tmp_path),
        "/srv/ebbtide": pipeline.root,
        "/var/cache/ebbtide": f"{tmp_path}/c",
    }
    options = {"--metrics-port": str(port), "--metrics-host": "127.0.0.1"}
    process = process_of_pod("StatefulSet").below({**mounts, "ebbtide": EBBTIDE}, options)
    pipeline.put(up(1, 1))
    assert [step["step"] for step in followed_to(process, port, 1)] == [1]
    pipeline.put(up(2, 2))
    assert [step["step"] for step in followed_to(process, port, 2)] == [2]


def test_unit_is_started_and_ended_as_systemd_does(make, tmp_path):
    pipeline = make(engine="local")
    defs = tmp_path / "defs" / "orders"
    defs.mkdir(parents=True)
    write_spec(pipeline, defs)
    port = free_port()
    folders = {
        "/opt/shop/.venv/bin/ebbtide": EBBTIDE,
        "/opt/shop/defs": str(defs.parent),
        "/srv/ebbtide": pipeline.root,
    }
    folders["/var/cache/ebbtide"] = f"{tmp_path}/c"
    process = process_of_unit("ebbtide@.service").below(folders, {"--metrics-port": str(port)})
    assert "KillSignal" not in unit("ebbtide@.service"), "SIGTERM is sent"
    pipeline.put(up(1, 1))
    assert [step["step"] for step in followed_to(process, port, 1)] == [1]


@needs(SYSTEMD)
def test_units_are_what_systemd_reads(tmp_path):
    """Each is given a program that is there; then nothing is said of it."""
    for path in (EXAMPLES / "systemd").glob("*@.*"):
        text = path.read_text().replace("/opt/shop/.venv/bin/ebbtide", EBBTIDE)
        (tmp_path / path.name).write_text(text)
    names = ["ebbtide@orders.service", "ebbtide-maintenance@orders.service", "ebbtide-maintenance@orders.timer"]
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no"]
    checked = subprocess.run(
        [*verify, *(tmp_path / name for name in names)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    unit_path = tmp_path / "ebbtide@.service"
    unit_path.write_text(unit_path.read_text().replace("Restart=always", "Restart=allways"))
    checked = subprocess.run([*verify, tmp_path / names[0]], capture_output=True, text=True, check=False)
    assert "allways" in checked.stderr


def test_linter_finds_nothing_in_the_container_file():
    hadolint = BIN / "hadolint"
    path = EXAMPLES / "container" / "Containerfile"
    subprocess.run([hadolint, path], check=True)
    wrong = path.read_text().replace(" --no-install-recommends", "")
    checked = subprocess.run([hadolint, "-"], input=wrong, capture_output=True, text=True, check=False)
    assert "DL3015" in checked.stdout


def copies():
    """Yield source and target of what the container file copies."""
    for name, text in container_file():
        if name == "COPY":
            *sources, target = [part for part in text.split() if not part.startswith("--")]
            yield from ((source, target) for source in sources)


def test_container_copies_what_there_is_and_all_that_the_project_has():
    copied = {source for source, _ in copies()}
    assert [source for source in copied if not (ROOT / source).exists()] == []
    code = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("**/*.py"))}
    assert code - copied - {"tests", "docs", "examples", "benchmarks"} <= {
        path.name for path in ROOT.iterdir() if path.name.startswith(".") or path.name == "mutants"
    }
    [command] = [text for name, text in container_file() if name == "CMD"]
    assert (ROOT / json.loads(command)[1]).exists()


def project_below(folder):
    """Run what the container file says in a plain folder: all but Debian's packages and the user, which need its image."""
    variables = dict(os.environ)
    variables.pop("VIRTUAL_ENV", None)
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name, written in container_file():
        text = written.replace("/opt/ebbtide", str(folder)).replace("/var/cache/ebbtide", f"{folder}/.cache-of-keys")
        if name == "ENV":
            variables |= {
                key: value.replace("$PATH", variables["PATH"])
                for key, value in (pair.split("=", 1) for pair in text.split())
            }
        elif name == "COPY":
            *sources, target = [part for part in text.split() if not part.startswith("--")]
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, folder / target, ignore=ignored, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / source, folder / target)
        elif name == "RUN" and not text.startswith(("apt-get", "useradd")):
            # The packages that uv has fetched before are taken again.
            subprocess.run(["sh", "-ec", text.replace("--no-cache ", "")], check=True, cwd=folder, env=variables)
        elif name == "CMD":
            yield subprocess.run(
                json.loads(text), cwd=folder, env=variables, capture_output=True, text=True, check=False
            )


@pytest.mark.grid
def test_container_file_s_commands_run_the_demo_in_a_plain_folder(tmp_path):
    [demo] = project_below(tmp_path)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "all equal, all checks passed." in demo.stdout


@pytest.mark.grid
@pytest.mark.spark
def test_maintenance_of_the_cron_job_runs_and_the_run_goes_on_behind_it(make, tmp_path):
    pipeline = make()
    write_spec(pipeline, tmp_path)
    pipeline.read(up(1, 1), up(2, 2))
    process = process_of_pod("CronJob")
    mounts = {"/etc/ebbtide/orders": str(tmp_path), "/srv/ebbtide": pipeline.root}
    moved = process.below(mounts, {})
    path = f"{BIN}:{os.environ['PATH']}"
    done = subprocess.run(moved.command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [step.kind for step in pipeline.read(up(3, 3))] == ["batch"]


@pytest.mark.grid
@pytest.mark.filterwarnings("default")  # Dagster's launcher and the client of Kubernetes warn of their own calls
def test_dagster_makes_jobs_of_the_sample_that_kubernetes_takes(monkeypatch):
    import dagster as dg
    from dagster._config import process_config, resolve_to_config_type
    from dagster_k8s import K8sRunLauncher, construct_dagster_k8s_job, launcher

    settings = yaml.safe_load((EXAMPLES / "kubernetes" / "dagster.yaml").read_text())
    config = settings["run_launcher"]["config"]
    checked = process_config(resolve_to_config_type(K8sRunLauncher.config_type()), config)
    assert checked.success, checked.errors
    monkeypatch.setattr(launcher, "load_kubernetes_config", lambda *_, **__: None)
    made = K8sRunLauncher.from_config_value(None, checked.value)
    run = dg.DagsterRun(job_name="orders", run_id="12345678-0000-0000-0000-000000000000")
    context = made.get_container_context_for_run(run)
    job_config = context.get_k8s_job_config(made.job_image, made)
    user_defined = context.run_k8s_config
    job = construct_dagster_k8s_job(
        job_config, ["dagster", "api", "execute_run"], "orders", user_defined_k8s_config=user_defined, labels={}
    )
    from kubernetes.client import ApiClient

    body = ApiClient().sanitize_for_serialization(job)
    kubernetes_validate.validate(body, VERSIONS[-1], strict=True)
    pod = body["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] == pod_of("StatefulSet")["spec"]["terminationGracePeriodSeconds"]
    assert container["image"] == pod_of("StatefulSet")["spec"]["containers"][0]["image"]
    assert {"secretRef": {"name": "ebbtide-credentials"}} in container["envFrom"]
    assert {"name": "EBBTIDE_ROOT", "value": "s3://lake/ebbtide"} in container["env"]
