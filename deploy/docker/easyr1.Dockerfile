# The image of Ray workers that train with EasyR1 (docs/gpu.md), and of the runner, which merges what they leave: the
# service's GPU image, and beside it EasyR1's own Python 3.12 with its torch, vLLM and Ray. Our worker reserves the GPUs
# and starts that Python as a process of its own, so the two environments share a container and nothing else.
#
#   docker build -f deploy/docker/easyr1.Dockerfile -t coevo:0.1.0-easyr1 --build-arg SERVICE=coevo:0.1.0-gpu .
#
# In a preset: [trainer] type = "easyr1", source = "/opt/EasyR1", python = "/opt/easyr1-env/bin/python".

ARG SERVICE=coevo:0.1.0-gpu

FROM python:3.12.12-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir uv==0.13.9
WORKDIR /opt/EasyR1
RUN git init --quiet \
    && git fetch --quiet --depth 1 https://github.com/hiyouga/EasyR1 b44b311b669bf1fd1aa2fc36f2251482ba33cb16 \
    && git checkout --quiet FETCH_HEAD \
    && rm -rf .git
# EasyR1 leaves most of its requirements open; what was released after its commit was written is not taken. The last two
# lines are what our reward imports. flash-attn has no wheel on PyPI: this one is its project's, for this torch.
#
# The environment links to the program that made it: by its full name, since /usr/local/bin/python is the service's 3.11
# in the final stage.
RUN python3.12 -m venv /opt/easyr1-env \
    && uv pip install --no-cache --python /opt/easyr1-env/bin/python --exclude-newer 2026-08-01 \
      torch==2.8.0 vllm==0.11.0 "transformers>=4.54,<5" omegaconf==2.3.0 "numpy>=2.2,<2.3" "ray[default]" \
      accelerate codetiming datasets hydra-core liger-kernel mathruler pandas peft pillow "pyarrow>=15" pylatexenc \
      qwen-vl-utils tensordict torchdata wandb \
      aiohttp httpx math-verify nltk psutil "pydantic>=2.12,<3" scikit-learn scipy sympy \
      "flash-attn @ https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"

# hadolint ignore=DL3006
FROM ${SERVICE}
USER 0
# Python 3.12 beside the service's 3.11: both are of the same Debian and share no file.
COPY --from=build /usr/local/bin/python3.12 /usr/local/bin/
COPY --from=build /usr/local/lib/libpython3.12.so.1.0 /usr/local/lib/
COPY --from=build /usr/local/lib/python3.12 /usr/local/lib/python3.12
COPY --from=build /usr/local/include/python3.12 /usr/local/include/python3.12
RUN ldconfig
COPY --from=build /opt/easyr1-env /opt/easyr1-env
COPY --from=build /opt/EasyR1 /opt/EasyR1
# Another Python than EasyR1's ends the build here, not a training later.
RUN /opt/easyr1-env/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))'
USER 1000:1000
# Health check, entry point and environment are the service image's.
