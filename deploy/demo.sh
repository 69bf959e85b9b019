#!/usr/bin/env bash
# The main job on the embedded default: services up, the run `demo`, its report, services down again (unless kept).
set -euo pipefail
cd "$(dirname "$0")/.."
keep=${1:-}
coevo=.venv/bin/coevo
[ -n "$keep" ] || trap '$coevo down' EXIT
$coevo up --free-ports
$coevo run demo
$coevo report demo --summary
echo "report: $($coevo report demo)"
[ -z "$keep" ] || { $coevo status --secrets; echo "the services are still up; $coevo down ends them"; }
