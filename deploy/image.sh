#!/bin/sh
# What the images hold, in two steps, so that a change of the program leaves the first one as it is:
#
#   image.sh environment REQUIREMENTS FOLDER   an environment of exactly these packages, each with its hash
#   image.sh program FOLDER                    the program of this checkout beside it, and no installer any more
#
# The Dockerfile runs it, and so does a test. FOLDER is absolute: an environment stays where it was made.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

case $1 in
environment)
  python3 -m venv "$3/venv"
  "$3/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --require-hashes --only-binary :all: --requirement "$2"
  ;;
program)
  # The library as a wheel, since it asks for its own version; the rest is run from its folder.
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
  python3 -m venv "$build/venv"
  "$build/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --require-hashes --only-binary :all: --requirement "$here/requirements/build.txt"
  "$build/venv/bin/python" -m pip wheel --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation --wheel-dir "$build" "$here"
  "$2/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps --no-index "$build"/*.whl
  mkdir -p "$2/app/examples" "$2/app/deploy"
  for part in worker.py commands activities workflows host; do cp -R "$here/$part" "$2/app/"; done
  cp -R "$here/examples/fixtures" "$2/app/examples/"
  cp "$here/deploy/probe.py" "$2/app/deploy/"
  find "$2/app" -name __pycache__ -prune -exec rm -rf {} +
  # Nothing can be compiled where it runs, on a root that is read-only.
  "$2/venv/bin/python" -m compileall -q "$2/app"
  "$2/venv/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes pip setuptools
  ;;
*)
  echo "image.sh environment REQUIREMENTS FOLDER | program FOLDER" >&2
  exit 2
  ;;
esac
