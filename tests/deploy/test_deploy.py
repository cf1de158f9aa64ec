"""The image and the manifests agree with each other, with the schemas of Kubernetes, and with our settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from pydantic import TypeAdapter

from autoclave.cli.main import cli
from autoclave.config import ServeConfig, load, parse_override
from autoclave.service.metrics import Metrics
from autoclave.service.wire import Wait

DEPLOY = Path(__file__).parents[2] / "deploy"
PAGE = DEPLOY.parent / "docs" / "how-to" / "operating.md"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes/judge.yaml").read_text()))
INGRESS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes/ingress.yaml").read_text()))
FIRST_TOKEN: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes/first-token.yaml").read_text())
VERSIONS = ("1.33", "1.37")  # the first with `hostUsers` on by default, and the newest schemas


def found(kind: str) -> dict[str, Any]:
    (document,) = (document for document in DOCUMENTS if document["kind"] == kind)
    return document


CONTAINER = found("Deployment")["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", [*DOCUMENTS, FIRST_TOKEN, *INGRESS], ids=lambda document: document["kind"])
def test_a_manifest_is_what_the_schema_of_kubernetes_says(document: dict[str, Any], version: str):
    kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_manifest_is_noticed():
    wrong = found("Service") | {"spec": {"selector": {}, "ports": [{"prot": 8750}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_everything_selects_the_pods_of_the_deployment():
    labels = found("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert found("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert found("Service")["spec"]["selector"] == labels
    assert found("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert found("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert found("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == found("Deployment")["metadata"]["name"]


def test_the_first_token_is_made_in_the_store_of_the_servers(tmp_path: Path):
    container = FIRST_TOKEN["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == CONTAINER["image"]
    assert (container["envFrom"], container["env"]) == (CONTAINER["envFrom"], CONTAINER["env"])
    assert container["args"] == [word for word in CONTAINER["args"] if word.startswith("store=")]
    made = CliRunner().invoke(cli, [*container["command"][1:], f"store={tmp_path / 'store.sqlite'}"])
    assert made.exit_code == 0, made.output


def test_the_server_in_the_container_takes_its_settings_and_demands_tokens():
    words = re.findall(r'"([^"]+)"', re.search(r"ENTRYPOINT (.*)", (DEPLOY / "Containerfile").read_text())[1])
    assert words[:2] == ["autoclave", "serve"]
    config = load(ServeConfig, None, [parse_override(word) for word in (*words[2:], *CONTAINER["args"])]).config
    assert config.require_token
    assert not config.is_local
    assert config.sandbox.minimum_level == "sealed"
    assert config.port == CONTAINER["ports"][0]["containerPort"]
    grace_s = found("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert config.drain_s < grace_s


def test_the_ingress_leads_to_the_service_and_lets_large_and_long_requests_through():
    ingress, policy = INGRESS
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    service = found("Service")
    assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]
    limits = {name.rpartition("/")[2]: text for name, text in ingress["metadata"]["annotations"].items()}
    assert limits["proxy-body-size"] == f"{ServeConfig().admission.upload_limit_mb:g}m"
    assert int(limits["proxy-read-timeout"]) > TypeAdapter(Wait).json_schema()["maximum"]


def test_the_unit_of_systemd_starts_a_server_with_the_settings_of_the_page(tmp_path: Path):
    unit = DEPLOY / "systemd/autoclave-judge.service"
    service = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    program, *words = service["ExecStart"].split()
    assert words[0] == "serve"
    (settings,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "judge.yaml").write_text(settings)
    config = load(ServeConfig, tmp_path / "judge.yaml").config
    assert config.require_token
    assert config.drain_s < int(service["TimeoutStopSec"])
    assert Path(config.store).parent == Path(service["WorkingDirectory"])
    if verify := shutil.which("systemd-analyze"):
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace(program, sys.executable).replace("User=judge\n", ""))
        checked = subprocess.run([verify, "verify", "--man=no", copy], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_every_metric_of_the_alerts_exists():
    named = set(re.findall(r"autoclave_\w+", PAGE.read_text()))
    existing = Metrics().text(dict.fromkeys(("running_jobs", "slots", "queue_jobs"), 0.0))
    assert named
    assert {name for name in named if name.removesuffix("_bucket").removesuffix("_total") not in existing} == set()


def test_the_pod_has_no_privilege():
    pod = found("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["hostUsers"] is False
    assert pod["automountServiceAccountToken"] is False
    assert CONTAINER["securityContext"]["allowPrivilegeEscalation"] is False
    assert CONTAINER["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    user = re.search(r"^USER (\d+)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert int(user[1]) == pod["securityContext"]["runAsUser"] != 0


def test_the_pod_may_make_the_namespaces_of_sealed_cells():
    security = found("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert security["seccompProfile"] == security["appArmorProfile"] == {"type": "Unconfined"}


def test_programs_reach_nothing_but_the_database_and_names():
    egress = found("NetworkPolicy")["spec"]["egress"]
    assert {port["port"] for rule in egress for port in rule["ports"]} == {53, 5432}
    assert all(rule["to"] for rule in egress)
