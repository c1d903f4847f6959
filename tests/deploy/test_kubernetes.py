"""The manifests are what Kubernetes takes, refer to one another, and start what hermesd has."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import celpy.adapter
import celpy.celtypes
import kubernetes_validate
import pytest
import typer
import yaml

import hermesctl.cli
import hermesd.cli
from hermesd.config.sources import load_head, load_node

BASE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
CONTAINERFILE = BASE.parent / "Containerfile"
PROGRAMS = {"hermesd": hermesd.cli.app, "hermesctl": hermesctl.cli.app}
# Made by people, since it is a secret; docs/kubernetes.md says how.
MADE_BY_HAND = {("Secret", "hermes-node-token")}


class Container(NamedTuple):
    """One, and the specification of the pod that it is in."""

    pod: dict[str, Any]
    spec: dict[str, Any]


def kustomization() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    return read


def resources() -> list[dict[str, Any]]:
    files = [BASE / name for name in kustomization()["resources"]]
    return [one for file in files for one in yaml.safe_load_all(file.read_text())]


def pods() -> Iterator[dict[str, Any]]:
    for one in resources():
        if one["kind"] in ("Deployment", "DaemonSet"):
            yield one["spec"]["template"]["spec"]


def containers() -> list[Container]:
    return [
        Container(pod, spec)
        for pod in pods()
        for spec in (*pod.get("initContainers", ()), *pod["containers"])
    ]


def commands() -> Iterator[list[str]]:
    """Every command line of ours, as the words of a program and its arguments."""
    entry = CONTAINERFILE.read_text().split("ENTRYPOINT ")[1].splitlines()[0]
    assert entry == '["tini", "--", "hermesd"]'
    for _, spec in containers():
        if "command" not in spec:
            yield ["hermesd", *spec["args"]]
        for words in (spec.get("command", []) + spec.get("args", []), *_hooks(spec)):
            if words[:2] == ["sh", "-c"]:
                words = shlex.split(words[2].partition("exec ")[2])
            if words and words[0] in PROGRAMS:
                yield words


def _hooks(spec: dict[str, Any]) -> Iterator[list[str]]:
    probes = [spec.get(f"{kind}Probe", {}) for kind in ("startup", "readiness", "liveness")]
    for hook in (*probes, spec.get("lifecycle", {}).get("preStop", {})):
        yield hook.get("exec", {}).get("command", [])


def accepted(words: list[str]) -> str:
    """Have the program's own parser read the words; the command that they are for."""
    command: Any = typer.main.get_command(PROGRAMS[words[0]])
    path, rest = [words[0]], words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, path = command.commands[rest[0]], [*path, rest[0]]
        rest = rest[1:]
    command.make_context(path[-1], list(rest))
    return " ".join(path)


def test_every_manifest_is_in_the_base() -> None:
    files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(kustomization()["resources"])


@pytest.mark.parametrize(
    "one", resources(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_kubernetes_takes_it(one: dict[str, Any]) -> None:
    kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_a_field_that_kubernetes_has_not_would_be_found() -> None:
    [daemons] = [one for one in resources() if one["kind"] == "DaemonSet"]
    daemons["spec"]["template"]["spec"]["containers"][0]["privilleged"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemons, kubernetes_validate.latest_version(), strict=True)


def test_the_daemons_take_the_command_lines() -> None:
    found = {accepted(words) for words in commands()}
    assert found == {"hermesd head", "hermesd node", "hermesd node join", "hermesctl node ls"}


def test_an_option_that_a_daemon_has_not_would_be_found() -> None:
    with pytest.raises(Exception, match="--slotz"):
        accepted(["hermesd", "node", "--slotz", "0"])


def test_the_daemons_take_the_settings(tmp_path: Path) -> None:
    head = load_head(BASE / "hermesd.toml", {}, {})
    assert (head.listen, head.enroll_address) == ("0.0.0.0:7411", "0.0.0.0:7412")
    [node] = [spec for _, spec in containers() if spec["name"] == "node"]
    values = {one["name"]: one.get("value", "") for one in node["env"]}
    values = {name: text.replace("$(POD_IP)", "10.1.2.3") for name, text in values.items()}
    settings = load_node(None, values, {"state_dir": tmp_path})
    assert (settings.transfer, settings.stops_by) == ("10.1.2.3:7413", "part")


def test_ports_are_those_of_the_settings() -> None:
    ports = {
        port["name"]: port["containerPort"]
        for _, spec in containers()
        for port in spec.get("ports", ())
    }
    assert ports == {"control": 7411, "enroll": 7412, "transfer": 7413}
    [service] = [one for one in resources() if one["kind"] == "Service"]
    for port in service["spec"]["ports"]:
        assert port["port"] == ports[port["targetPort"]]
    join = next(words for words in commands() if words[:3] == ["hermesd", "node", "join"])
    assert join[3] == f"{service['metadata']['name']}:{ports['control']}"
    for _, spec in containers():
        for kind in ("startup", "readiness", "liveness"):
            socket = spec.get(f"{kind}Probe", {}).get("tcpSocket")
            assert socket is None or socket["port"] in [port["name"] for port in spec["ports"]]


def test_what_is_referred_to_is_there() -> None:
    known = {(one["kind"], one["metadata"]["name"]) for one in resources()}
    known |= {("ConfigMap", one["name"]) for one in kustomization()["configMapGenerator"]}
    for pod in pods():
        for volume in pod["volumes"]:
            match volume:
                case {"configMap": {"name": name}}:
                    assert ("ConfigMap", name) in known
                case {"persistentVolumeClaim": {"claimName": name}}:
                    assert ("PersistentVolumeClaim", name) in known
                case {"secret": {"secretName": name}}:
                    assert ("Secret", name) in MADE_BY_HAND
                case _:
                    assert "emptyDir" in volume
    for pod, spec in containers():
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in spec["volumeMounts"]} <= volumes
        assert spec["image"] in [image["name"] for image in kustomization()["images"]]


def test_selectors_find_their_pods() -> None:
    labels = {}
    for one in resources():
        if one["kind"] in ("Deployment", "DaemonSet"):
            own = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"] == own
            labels[one["metadata"]["name"]] = own
    [service] = [one for one in resources() if one["kind"] == "Service"]
    assert service["spec"]["selector"] == labels[service["metadata"]["name"]]


def test_nobody_has_more_rights_than_needed() -> None:
    for pod in pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        user = pod["securityContext"]["runAsUser"]
        assert f"--uid {user} " in CONTAINERFILE.read_text()
    for _, spec in containers():
        assert spec["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in spec["resources"]["limits"]


def test_a_node_has_a_gpu_and_the_time_to_leave() -> None:
    [node] = [one for one in containers() if one.spec["name"] == "node"]
    assert node.spec["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert node.pod["terminationGracePeriodSeconds"] >= 600
    assert "kill -USR1 1" in node.spec["lifecycle"]["preStop"]["exec"]["command"][2]


def digested(image: str) -> str:
    """An image of that name, as an overlay is to name it."""
    return f"registry.example/{image}@sha256:{'0a' * 32}"


@cache
def admission() -> dict[str, Any]:
    [policy] = [each for each in resources() if each["kind"] == "ValidatingAdmissionPolicy"]
    return policy


@cache
def compiled(expression: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


def refusal(one: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """What the policy of the base has against a manifest, by its expressions; empty: nothing.
    `before` is what it takes the place of."""
    policy = admission()
    known: dict[str, Any] = {
        "object": celpy.adapter.json_to_cel(one),
        "oldObject": celpy.adapter.json_to_cel(before),
        "variables": celpy.celtypes.MapType(),
    }

    def value(expression: str) -> Any:
        return compiled(expression).evaluate(known)

    for each in policy["spec"]["variables"]:
        known["variables"][celpy.celtypes.StringType(each["name"])] = value(each["expression"])
    [rule] = policy["spec"]["validations"]
    return "" if value(rule["expression"]) else str(value(rule["messageExpression"]))


def pod_of(**images: str) -> dict[str, Any]:
    kinds = {kind: [{"name": kind, "image": image}] for kind, image in images.items()}
    return {"kind": "Pod", "spec": {"containers": [{"name": "n", "image": digested("n")}]} | kinds}


def test_no_image_is_admitted_without_its_digest() -> None:
    workloads = [one for one in resources() if one["kind"] in ("Deployment", "DaemonSet")]
    for one in workloads:
        assert refusal(one).endswith("image: hermes, expected one with its digest: NAME@sha256:...")
        pod = one["spec"]["template"]["spec"]
        for spec in (*pod.get("initContainers", ()), *pod["containers"]):
            spec["image"] = digested(spec["image"])
        assert refusal(one) == ""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        assert refusal(pod_of(**{kind: digested("a")})) == ""
        for image in (
            "a",
            "a:latest",
            "a@sha256:0a",
            f"{digested('a')}:latest",
            "sha256:" + "0" * 64,
        ):
            assert refusal(pod_of(**{kind: image})).startswith(f"container {kind}: image: {image},")


def test_what_had_such_an_image_before_the_policy_can_be_changed_otherwise() -> None:
    """Foreground deletion, for one, takes an update of each pod."""
    loose, pinned = pod_of(containers="a", initContainers="b:1"), pod_of(containers=digested("a"))
    held = loose | {"metadata": {"finalizers": ["foregroundDeletion"]}}
    assert refusal(held, loose) == ""
    debugged = {"spec": loose["spec"] | pod_of(ephemeralContainers=digested("c"))["spec"]}
    debugged["spec"]["containers"] = loose["spec"]["containers"]
    assert refusal(debugged, loose) == ""
    assert refusal(pod_of(containers="a:2"), loose).startswith("container containers: image: a:2,")
    assert refusal(pod_of(containers="a"), pinned).startswith("container containers: image: a,")
    deployments = [{"spec": {"template": one}} for one in (loose, pod_of(containers="c"))]
    assert refusal(deployments[0], deployments[0]) == ""
    assert refusal(deployments[1], deployments[0]).startswith("container containers: image: c,")


def test_the_policy_is_about_all_pods_of_the_namespace() -> None:
    by_name = {
        one["kind"]: one for one in resources() if one["metadata"]["name"] == "hermes-images"
    }
    policy = by_name["ValidatingAdmissionPolicy"]["spec"]
    assert by_name["ValidatingAdmissionPolicyBinding"]["spec"] == {
        "policyName": "hermes-images", "validationActions": ["Deny"],
    }  # fmt: skip
    [labels] = kustomization()["labels"]
    assert policy["matchConstraints"]["namespaceSelector"]["matchLabels"] == labels["pairs"]
    rules = policy["matchConstraints"]["resourceRules"]
    about = {resource for rule in rules for resource in rule["resources"]}
    assert {"pods", "pods/ephemeralcontainers"} <= about
    kinds = {one["kind"] for one in resources() if "template" in one.get("spec", {})}
    assert {f"{kind.lower()}s" for kind in kinds} <= about
    assert (policy["failurePolicy"], {tuple(rule["operations"]) for rule in rules}) == (
        "Fail", {("CREATE", "UPDATE")},
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
def test_kustomize_puts_it_together() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(BASE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    built = list(yaml.safe_load_all(done.stdout))
    kinds = sorted(one["kind"] for one in built)
    assert kinds == sorted([one["kind"] for one in resources()] + ["ConfigMap"])
    for one in built:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
        if one["kind"] != "Namespace" and "AdmissionPolicy" not in one["kind"]:
            assert one["metadata"]["namespace"] == "hermes"


def test_the_image_has_all_that_the_package_is_made_of() -> None:
    lines = CONTAINERFILE.read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    for name in copied:
        assert (BASE.parents[1] / name).exists()
    assert {"pyproject.toml", "hermesd", "hermesctl", "trainer_shim", "protos", "systemd"} <= copied
