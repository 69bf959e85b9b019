#!/usr/bin/env bash
# Check the dashboard's JavaScript: Biome lints it and checks its format, and TypeScript checks its types. The types of
# the REST API's responses are generated from the API's description. Usage: tests/lint-javascript.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")

NETWORK_ERRORS='ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|E50[0-9]|ERR_SOCKET'

skip() {
  echo "skipped: JavaScript's lint and types: $1"
  exit 0
}

# Run a command, and show its output only if it fails.
quietly() {
  local output
  output=$("$@" 2>&1) || {
    echo "$output" >&2
    exit 1
  }
}

install() {
  local output
  output=$(npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1 --fetch-retry-mintimeout=1000 2>&1) || {
    if grep -qE "$NETWORK_ERRORS" <<<"$output"; then
      skip "no npm registry can be reached"
    fi
    echo "$output" >&2
    exit 1
  }
  rm -f api-types.d.ts # which another version may generate differently
  cp package-lock.json node_modules/.installed-lock.json
}

# Write the API's description to openapi.json if it has changed. It needs neither a server nor a store.
describe_api() {
  PYTHONPATH=../.. "$python" - <<'PYTHON'
import json
from pathlib import Path

from services.api.app import create_app

file, description = Path("openapi.json"), json.dumps(create_app(None, Path(), ask_for_keys=True).openapi())
if not file.exists() or file.read_text() != description:
    file.write_text(description)
PYTHON
}

generate_types() {
  describe_api || return # set -e has no effect in what `quietly` runs
  [ api-types.d.ts -nt openapi.json ] ||
    node_modules/.bin/openapi-typescript openapi.json --default-non-nullable=false --output api-types.d.ts
}

command -v node >/dev/null || skip "node is not installed"
command -v npm >/dev/null || skip "npm is not installed"
node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' || skip "node is older than 20"
cd services/dashboard
cmp -s package-lock.json node_modules/.installed-lock.json || install
quietly node_modules/.bin/biome check --error-on-warnings .
quietly generate_types
quietly node_modules/.bin/tsc --project .
