# Every target that runs something depends on `setup`, which does nothing when the environment is up to date. What only
# tests run (a Node.js, real MCP servers, the conformance suite) comes by `tools`, which does nothing either then.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pack activities workflows host commands worker.py examples benchmarks deploy tests

.PHONY: setup tools demo test conformance chaos cluster check format schemas reference bench lock clean

setup: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

tools: setup
	$(BIN)/python -m tests.support.tools

demo: setup
	$(BIN)/python worker.py demo

# Most tests wait for processes of their own. A file stays together, since its tests share a Temporal and servers.
test: tools
	$(BIN)/python -m pytest -n auto --dist loadfile

conformance: tools
	$(BIN)/python -m tests.conformance

chaos: setup
	$(BIN)/python -m tests.chaos

cluster: setup
	$(BIN)/python -m tests.cluster

check: setup
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

schemas: setup
	$(BIN)/python -m openwop_mcp.nodes

reference: setup
	$(BIN)/python -m tests.support.reference_doc

bench: setup
	$(BIN)/python -m benchmarks

lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  pyproject.toml --extra worker --extra host --extra s3 --extra otlp --output-file requirements/runtime.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  pyproject.toml --extra worker --extra host --extra s3 --extra otlp --group dev --constraints requirements/runtime.txt --output-file requirements/dev.txt
	for group in build sample; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --group $$group --constraints requirements/dev.txt --output-file requirements/$$group.txt || exit 1; \
	done
	for name in node servers legacy; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    requirements/$$name.in --output-file requirements/$$name.txt || exit 1; \
	done

clean:
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
