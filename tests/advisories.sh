#!/usr/bin/env bash
# Looks up known vulnerabilities of every package that is installed or shipped: Python's in the OSV database, and
# JavaScript's in npm's. It needs PyPI, api.osv.dev, and npm's registry with its advisories. Exits with 1 if there is a
# vulnerability, or if a package could not be looked up.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/build/advisories
status=0

python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check pip-audit==2.10.1
for list in constraints.txt deploy/docker/requirements-*.txt; do
    echo "$list"
    "$tools/bin/pip-audit" --vulnerability-service=osv --strict --disable-pip --no-deps --requirement="$list" || status=1
done

echo "services/dashboard/package-lock.json"
npm --prefix services/dashboard audit || status=1

# The libraries in vendor/ with what they depend on, by the names and versions in the table of its README.
echo "services/dashboard/vendor"
mkdir -p "$tools/vendored"
sed -nE 's/^\|.*\| (@?[a-z0-9/]+) ([0-9.]+) \|.*/\1@\2/p' services/dashboard/vendor/README.md > "$tools/vendored/names"
echo '{"private": true}' > "$tools/vendored/package.json"
xargs npm --prefix "$tools/vendored" install --package-lock-only --ignore-scripts --no-audit --silent < "$tools/vendored/names"
npm --prefix "$tools/vendored" audit || status=1
exit "$status"
