#!/usr/bin/env bash
# Writes down what the images install: every package's version, and the hashes of its files on PyPI.
#
#   deploy/docker/lock.sh          # after a change of pyproject.toml or constraints.txt; needs uv (pip install uv)
#
# Where PyTorch's index is out of reach, UV_FIND_LINKS names a folder with torch's CPU wheel.
set -euo pipefail
cd "$(dirname "$0")/../.."
# constraints.txt is of the CPU's packages: vLLM and ray[llm] want other versions of these three.
others=$(mktemp) && trap 'rm -f "$others"' EXIT
sed -E '/^(grpcio-reflection|numpy|protobuf)==/d' constraints.txt > "$others"

compile() {  # variant, constraints, options…
  local variant=$1 constraints=$2
  shift 2
  # glibc 2.36 is Debian 12's, which the images' base is.
  uv pip compile pyproject.toml deploy/docker/image.in --constraints "$constraints" "$@" --generate-hashes \
    --python-version 3.11 --python-platform x86_64-manylinux_2_36 --only-binary :all: --no-annotate --quiet \
    --custom-compile-command deploy/docker/lock.sh --output-file "deploy/docker/requirements-$variant.txt"
}

if [ -n "${UV_FIND_LINKS:-}" ]; then compile cpu constraints.txt; else compile cpu constraints.txt --torch-backend cpu; fi
UV_FIND_LINKS='' compile gpu "$others" --extra vllm
