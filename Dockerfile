# Two images: `pack`, which is the worker and the host, and `sample`, an MCP server to try them with. What they hold is
# put together by deploy/image.sh; docs/deploy.md says how to use them.
ARG PYTHON=python:3.11.14-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements/runtime.txt requirements/
COPY deploy/image.sh deploy/
RUN sh deploy/image.sh environment requirements/runtime.txt /opt/openwop-mcp
COPY LICENSE README.md pyproject.toml worker.py ./
COPY requirements/build.txt requirements/
COPY pack pack
COPY examples/fixtures examples/fixtures
COPY activities activities
COPY workflows workflows
COPY host host
COPY commands commands
COPY deploy/probe.py deploy/
RUN sh deploy/image.sh program /opt/openwop-mcp

FROM ${PYTHON} AS build-sample
ENV PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements/sample.txt requirements/
COPY deploy/image.sh deploy/
RUN sh deploy/image.sh environment requirements/sample.txt /opt/openwop-mcp

FROM ${PYTHON} AS base
# No installer stays, and nobody who could use one. The folder is where volumes are mounted: a new one is its user's.
RUN python -m pip uninstall --quiet --yes --root-user-action ignore pip setuptools wheel \
 && groupadd --gid 10001 openwop-mcp \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin openwop-mcp \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/openwop-mcp
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["/opt/openwop-mcp/venv/bin/python", "-I", "/opt/openwop-mcp/app/deploy/probe.py"]

FROM base AS sample
COPY --from=build-sample /opt/openwop-mcp /opt/openwop-mcp
COPY deploy/probe.py /opt/openwop-mcp/app/deploy/
COPY examples/sample_server.py /opt/openwop-mcp/app/examples/
ENV PROBE=tcp://127.0.0.1:7801
EXPOSE 7801
ENTRYPOINT ["/opt/openwop-mcp/venv/bin/python", "/opt/openwop-mcp/app/examples/sample_server.py"]
CMD ["--host", "0.0.0.0", "--port", "7801"]

FROM base AS pack
COPY --from=build /opt/openwop-mcp /opt/openwop-mcp
# Tokens that `worker.py login` obtains lie in the volume too, where every worker finds them.
ENV XDG_STATE_HOME=/var/lib PROBE=/tmp/healthy
# Settings are mounted here.
WORKDIR /etc/openwop-mcp
EXPOSE 8080
ENTRYPOINT ["/opt/openwop-mcp/venv/bin/python", "/opt/openwop-mcp/app/worker.py"]
CMD ["run", "--healthy", "/tmp/healthy"]
