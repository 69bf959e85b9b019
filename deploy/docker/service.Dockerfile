# The one image of the flow runner, the Prefect server, Ray's head and Ray's workers: a Ray cluster wants the same
# Python and the same Ray everywhere, and its head imports what the workers serve.
#
#   docker build -f deploy/docker/service.Dockerfile -t coevo:0.1.0-cpu .
#   docker build -f deploy/docker/service.Dockerfile -t coevo:0.1.0-gpu --build-arg VARIANT=gpu .
#
# VARIANT=gpu has the extra `vllm`, whose CUDA libraries are those of torch's and vLLM's wheels: the host brings the
# driver (CUDA 13: 580 or newer) and NVIDIA's container toolkit. TORCH_INDEX is where the variant cpu finds torch's CPU
# build; empty, where pip finds it without.

FROM python:3.11.14-slim-bookworm AS build
ARG VARIANT=cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/coevo
RUN python -m venv /opt/venv
# Dependencies first and without the sources, so a change of the sources does not install them again. What is
# installed is what deploy/docker/lock.sh has written down, byte for byte.
COPY deploy/docker/requirements-*.txt deploy/docker/
RUN case "$VARIANT" in cpu|gpu) ;; *) echo "VARIANT: expected cpu or gpu, got $VARIANT" >&2; exit 1 ;; esac \
    && if [ "$VARIANT" = gpu ]; then TORCH_INDEX=; fi \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes --only-binary :all: \
      ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r "deploy/docker/requirements-$VARIANT.txt"
COPY . .
# Editable, because presets, Serve files and prefect.yaml are read from the tree that the packages lie in.
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation --no-index -e . \
    && /opt/venv/bin/python -m compileall -q /opt/coevo

FROM python:3.11.14-slim-bookworm
ARG VARIANT=cpu
# tini reaps what Ray's workers leave; on GPUs Triton compiles its kernels' launchers when they are first used.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && if [ "$VARIANT" = gpu ]; then apt-get install -y --no-install-recommends gcc libc6-dev; fi \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home --shell /usr/sbin/nologin coevo \
    && install -d -o coevo -g coevo /var/lib/coevo \
    && ln -s /opt/venv/bin/ray /usr/local/bin/ray
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/coevo /opt/coevo
COPY --chmod=755 deploy/docker/entrypoint.sh /usr/local/bin/coevo-entrypoint
# From DO_NOT_TRACK on it is what `coevo up` sets too (orchestrator/installation/cluster.py). Addresses and secrets,
# Ray's token among them, come from outside.
# hadolint ignore=DL3064
ENV PATH=/opt/venv/bin:$PATH \
    COEVO_HOME=/var/lib/coevo \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    DO_NOT_TRACK=1 \
    HF_HUB_OFFLINE=1 \
    PREFECT_CLIENT_MAX_RETRIES=9 \
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30 \
    PREFECT_LOGGING_HANDLERS_CONSOLE_CLASS=core.logs.Console \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PYTHONUNBUFFERED=1 \
    RAY_AUTH_MODE=token \
    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=services.inference.server.proxy:middlewares \
    RAY_SERVE_CONTROL_LOOP_INTERVAL_S=0.03 RAY_TRAIN_ENABLE_PREEMPTION_WATCHER=0 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_raylet_start_wait_time_s=180 \
    TOKENIZERS_PARALLELISM=false
WORKDIR /opt/coevo
USER 1000:1000
# True of every Ray node, the runner's included: its agent says whether its raylet lives.
HEALTHCHECK --interval=15s --timeout=10s --start-period=300s --retries=4 \
    CMD ["python", "-c", \
      "import urllib.request; urllib.request.urlopen('http://127.0.0.1:52365/api/healthz', timeout=5)"]
ENTRYPOINT ["tini", "--", "coevo-entrypoint"]
CMD ["python", "-m", "orchestrator.runner.process"]
