"""docker-compose.yml, as far as it can be held to something without an engine to run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from commands.app import app
from openwop_mcp.config import ENVIRONMENT_PREFIX, load
from tests.support.cli import ROOT
from tests.support.compose import FILE, PACK, command, compose, environment, services

OURS = sorted(name for name, service in services().items() if service["image"] == PACK)
BUILT = sorted(name for name, service in services().items() if "build" in service)
PULLED = sorted(services().keys() - set(BUILT))

VERSION = re.compile(r":v?\d+\.\d+(\.\d+)?(-bookworm)?$")

ROOTS = {None, "", "root", "0", 0}


def test_it_is_a_compose_file():
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", services())
def test_a_service_may_do_no_more_than_it_has_to(name):
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged", False)
    assert {"cpus", "memory", "pids"} <= service["deploy"]["resources"]["limits"].keys()
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "nothing is published beyond this machine"


@pytest.mark.parametrize("name", PULLED)
def test_an_image_that_is_pulled_has_a_version_and_a_user(name):
    assert VERSION.search(services()[name]["image"]), services()[name]["image"]
    assert services()[name]["user"] not in ROOTS


@pytest.mark.parametrize("name", services())
def test_what_a_service_waits_for_is_there_and_comes(name):
    for other, how in services()[name].get("depends_on", {}).items():
        needed = services()[other]
        match how["condition"]:
            case "service_healthy":
                assert "healthcheck" in needed or other in BUILT, f"{other} never says that it is healthy"
                assert needed["restart"] == "unless-stopped"
            case "service_completed_successfully":
                assert needed["restart"] == "no", f"{other} never completes"
            case condition:
                pytest.fail(condition)


def test_a_probe_is_a_program_of_the_image_and_asks_what_others_ask():
    probes = {name: service["healthcheck"]["test"] for name, service in services().items() if "healthcheck" in service}
    # Images of Alpine have these from busybox, and none has curl.
    programs = {"postgres": "pg_isready", "temporal": "nc", "temporal-ui": "wget", "prometheus": "wget"}
    assert {name: test[1] for name, test in probes.items()} == programs
    for test in probes.values():
        # Not a socket of the file system: on that one the database answers before it is set up.
        assert "127.0.0.1" in " ".join(test)


def test_the_page_says_what_never_tells_of_its_health():
    told = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    [line] = [line for line in told.splitlines() if line.startswith("docker compose ps")]
    without = {
        name
        for name, service in services().items()
        if "healthcheck" not in service and name not in BUILT and service["restart"] != "no"
    }
    assert all(name in line for name in without)


def test_what_runs_once_is_what_others_wait_for():
    once = {name for name, service in services().items() if service["restart"] == "no"}
    awaited = {
        other
        for service in services().values()
        for other, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_completed_successfully"
    }
    assert once == awaited == {"temporal-schema", "temporal-namespace"}


def test_every_file_that_is_named_is_there(tmp_path):
    whole = compose()
    for config in whole["configs"].values():
        assert (ROOT / config["file"]).is_file(), config
    (tmp_path / "deploy").mkdir()
    script = tmp_path / "deploy" / "secrets.sh"
    script.write_bytes((ROOT / "deploy/secrets.sh").read_bytes())
    subprocess.run(["sh", str(script)], check=True)
    for secret in whole["secrets"].values():
        # An engine that mounts secrets on a read-only root takes them from files alone.
        assert (tmp_path / secret["file"]).is_file(), secret
    used = {name for service in services().values() for name in service.get("secrets", [])}
    assert used == whole["secrets"].keys()
    mounted = {config["source"] for service in services().values() for config in service.get("configs", [])}
    assert mounted == whole["configs"].keys()
    volumes = {one.split(":")[0] for service in services().values() for one in service.get("volumes", [])}
    assert volumes == whole["volumes"].keys()


def test_secrets_are_made_once_and_are_nobodys_but_their_owners(tmp_path):
    script = tmp_path / "secrets.sh"
    script.write_bytes((ROOT / "deploy/secrets.sh").read_bytes())
    subprocess.run(["sh", str(script)], check=True)
    folder = tmp_path / "secrets"
    first = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    assert all(len(secret) == 64 for secret in first.values())
    assert len(set(first.values())) == len(first)
    assert folder.stat().st_mode & 0o777 == 0o700
    # The users in the containers are strangers here.
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o444}
    subprocess.run(["sh", str(script)], check=True)
    assert {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()} == first


def test_no_secret_stands_in_a_file_of_it():
    for name in services():
        for variable, value in environment(name).items():
            is_secret = re.search(r"PASSWORD|PWD|SECRET|TOKEN|KEY", variable) is not None
            assert not is_secret or str(value).startswith("/run/secrets/"), variable
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8")
    assert not [line for line in ignored() if "secrets" in line], "no image may have them"


def ignored() -> list[str]:
    """What .dockerignore lets into an image's build."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*"
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


@pytest.mark.parametrize("name", OURS)
def test_the_command_line_of_a_service_is_one_that_there_is(name):
    group = typer.main.get_command(app)
    word, *rest = command(name)
    with group.commands[word].make_context(word, rest) as context:
        assert not context.args


@pytest.mark.parametrize("name", OURS)
def test_the_settings_hold_for_a_service_and_in_its_environment(name):
    own = environment(name)
    known = {variable for variable in own if variable.startswith((ENVIRONMENT_PREFIX, "OTEL_"))}
    assert own.keys() - known <= {"PROBE"}
    settings = load(str(ROOT / "deploy/openwop-mcp.toml"), environ=own, secrets=False)
    assert settings.temporal.address == f"temporal:{port_of('temporal')}"
    # Workers and hosts share what is too large for a history.
    mounts = [volume.split(":")[1] for volume in services()[name]["volumes"]]
    assert all(Path(settings.storage.folder).is_relative_to(mount) for mount in mounts)
    for server in settings.servers.values():
        assert server.url is not None
        assert server.url.split("/")[2] == "sample:7801"


@pytest.mark.parametrize("name", OURS)
def test_files_that_the_settings_name_are_mounted(name):
    service = services()[name]
    settings = load(str(ROOT / "deploy/openwop-mcp.toml"), environ={}, secrets=False)
    targets = [Path(config["target"]) for config in service["configs"]]
    assert Path("/etc/openwop-mcp/openwop-mcp.toml") in targets
    for folder in settings.host.workflows:
        assert [target for target in targets if target.parent == Path(folder)]
    [key] = settings.keys
    assert key.secret is not None
    # A worker needs no key of the host's, and so has none.
    needed = [key.secret.file] if command(name)[0] == "serve" else []
    assert needed == [f"/run/secrets/{secret}" for secret in service.get("secrets", [])]
    if command(name)[0] == "serve":
        assert settings.host.bind.endswith(f":{port_of(name)}")
        assert environment(name)["PROBE"] == f"http://127.0.0.1:{port_of(name)}/readyz"
    else:
        # The file that the image's probe looks at.
        assert command(name)[-1] in (ROOT / "Dockerfile").read_text(encoding="utf-8").split("PROBE=")[-1]


def port_of(name: str) -> str:
    """The port that a service listens on, as it is published."""
    [port] = services()[name]["ports"]
    return port.split(":")[-1]


def test_telemetry_goes_where_the_collector_listens():
    collector = yaml.safe_load((ROOT / "deploy/collector.yaml").read_text(encoding="utf-8"))
    endpoint = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    for name in BUILT:
        assert environment(name)["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://collector:{endpoint.split(':')[1]}"
    pipelines = collector["service"]["pipelines"]
    for kind in ("receivers", "processors", "exporters"):
        assert {one for pipeline in pipelines.values() for one in pipeline[kind]} == collector[kind].keys()
    for exporter in collector["exporters"].values():
        host = re.sub(r"^http://", "", exporter["endpoint"]).split(":")[0]
        assert host in services()
    yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text(encoding="utf-8"))
    yaml.safe_load((ROOT / "deploy/temporal/dynamic.yaml").read_text(encoding="utf-8"))
