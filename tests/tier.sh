#!/usr/bin/env bash
# `tests/tier.sh NAME MINUTES COMMAND…`: runs a tier of the tests, and says how long it took and what its budget is. It
# fails if the command fails, or if it took half as long again as the budget: machines differ, and the same one does too.
set -u
name=$1 minutes=$2
shift 2
"$@"
status=$?
printf '%s: %d min %02d s, of a budget of %d min\n' "$name" $((SECONDS / 60)) $((SECONDS % 60)) "$minutes"
((status)) && exit "$status"
if ((SECONDS * 2 > minutes * 60 * 3)); then
  echo "$name took half as long again as its budget: make its slowest tests faster, or mark them slow (CONTRIBUTING.md)" >&2
  exit 1
fi
