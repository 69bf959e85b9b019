#!/usr/bin/env bash
# Builds what EasyR1's own code needs on a CPU, and tests against it: `make easyr1`. It installs an environment from PyPI
# into .venv/easyr1, or uses the Python that COEVO_EASYR1_PYTHON names. EasyR1 is the checkout that COEVO_EASYR1_SOURCE
# names; where that is not set, the script clones it. Exit status 77: EasyR1 is not there and cannot be cloned.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=tests/trainers/easyr1_on_a_cpu
home=$PWD/.venv/easyr1
commit=$(sed -n 's/^PINNED = "\([0-9a-f]*\)".*/\1/p' trainers/easyr1/__init__.py)

if [ -z "${COEVO_EASYR1_SOURCE:-}" ]; then
  COEVO_EASYR1_SOURCE=$home/EasyR1
  if [ ! -d "$COEVO_EASYR1_SOURCE/.git" ]; then
    echo "cloning EasyR1"
    git clone --quiet https://github.com/hiyouga/EasyR1 "$COEVO_EASYR1_SOURCE" || {
      echo "EasyR1 cannot be cloned here: COEVO_EASYR1_SOURCE=DIR make easyr1 takes a checkout of $commit" >&2
      exit 77
    }
  fi
  git -C "$COEVO_EASYR1_SOURCE" checkout --quiet "$commit"
fi
export COEVO_EASYR1_SOURCE
[ -f "$COEVO_EASYR1_SOURCE/verl/trainer/main.py" ] || {
  echo "COEVO_EASYR1_SOURCE: expected a checkout of EasyR1, there is no $COEVO_EASYR1_SOURCE/verl/trainer/main.py" >&2
  exit 1
}

if [ -z "${COEVO_EASYR1_PYTHON:-}" ]; then
  COEVO_EASYR1_PYTHON=$home/env/bin/python
  if ! cmp --silent "$here/requirements.txt" "$home/installed.txt"; then
    echo "installing what EasyR1 needs into .venv/easyr1/env (a few minutes, 1.5 GB)"
    .venv/bin/python -m venv "$home/env"
    "$COEVO_EASYR1_PYTHON" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$home/installed.txt"
  fi
fi
export COEVO_EASYR1_PYTHON COEVO_EASYR1_WHOLE=1
.venv/bin/python -m pytest tests/trainers/test_easyr1_contract.py tests/trainers/test_easyr1_corrections.py \
  tests/trainers/test_easyr1_worker.py tests/trainers/test_easyr1_whole.py
