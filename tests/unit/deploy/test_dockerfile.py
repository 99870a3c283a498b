"""The Dockerfile, as far as it can be held to something without an engine to build it."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from tests.support.cli import ROOT
from tests.support.compose import services

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def instructions(word: str, text: str = TEXT) -> list[str]:
    return [line.removeprefix(word).strip() for line in text.splitlines() if line.startswith(f"{word} ")]


def stages() -> dict[str, str]:
    """The instructions of each stage, those of the stage that it begins with among them."""
    found: dict[str, str] = {}
    for part in re.split(r"^(?=FROM )", TEXT, flags=re.MULTILINE)[1:]:
        source, _, name = part.splitlines()[0].removeprefix("FROM ").partition(" AS ")
        found[name] = found.get(source, "") + part
    return found


def test_what_is_copied_from_the_checkout_is_there_and_let_in():
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    copied = {source for line in instructions("COPY") if not line.startswith("--from") for source in line.split()[:-1]}
    for source in copied:
        assert (ROOT / source).exists(), source
        assert [one for one in let_in if fnmatch(source, one) or source.startswith(f"{one}/")], source
    for one in let_in:
        assert (ROOT / one).exists(), one
        assert one in copied, f"{one} is let in for nothing"


def test_everything_that_the_script_takes_into_the_image_is_copied_to_it():
    script = (ROOT / "deploy/image.sh").read_text(encoding="utf-8")
    build = stages()["build"]
    [parts] = re.findall(r"for part in (.*?); do", script)
    for part in [*parts.split(), "examples/fixtures", "deploy/probe.py", "requirements/build.txt"]:
        assert part in script
        assert part in build, part


def test_a_final_stage_has_a_user_a_probe_and_a_program_and_no_way_to_build():
    for name in {service["build"]["target"] for service in services().values() if "build" in service}:
        stage = stages()[name]
        assert instructions("USER", stage)[-1] == "10001:10001"
        assert instructions("HEALTHCHECK", stage)
        assert instructions("ENTRYPOINT", stage)
        assert "--from=build" in stage
        assert "pip uninstall" in stage
        assert "apt" not in stage
        assert not [line for line in instructions("ENV", stage) if re.search("KEY|SECRET|TOKEN|PASSWORD", line)]
    [base] = instructions("ARG")
    assert re.fullmatch(r"PYTHON=python:3\.\d+\.\d+-slim-bookworm", base)


def test_the_build_takes_the_backend_that_the_project_names():
    locked = (ROOT / "requirements/build.txt").read_text(encoding="utf-8")
    [backend] = re.findall(r'requires = \["(.*)"\]', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert locked.startswith(f"{backend} \\\n")
    for name in ("build", "runtime", "sample"):
        text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        entries = re.findall(r"^[^\s#-].*$", text, flags=re.MULTILINE)
        assert entries
        assert all("==" in entry and entry.endswith("\\") for entry in entries), "each has a version and a hash"
