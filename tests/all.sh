#!/usr/bin/env bash
# `make test-all`: all tests that this machine can run. At the end it lists the tests that it skipped, with the reasons,
# and fails if a part failed.
set -u
cd "$(dirname "$0")/.."
python=$1
log=$(mktemp)
failed=()

part() {  # NAME COMMAND…: exit status 77 says that this machine cannot run the part, and its last line says why
  local name=$1 own status
  own=$(mktemp)
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$own"
  status=${PIPESTATUS[0]}
  case $status in
    0) ;;
    77) echo "skipped: $name: $(tail -1 "$own")" >>"$own" ;;
    *) failed+=("$name") ;;
  esac
  cat "$own" >>"$log"
  rm "$own"
  return "$status"
}

# Where Docker is missing, start one beside the machine's packages for the last part.
if ! docker info >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then
  export COEVO_CONTAINERS_STATE=${COEVO_CONTAINERS_STATE:-/var/tmp/coevo-containers}
  trap 'tests/containers/engine.sh stop' EXIT
  tests/containers/engine.sh start && PATH=$COEVO_CONTAINERS_STATE/bin:$PATH
fi

part "style and types" make --no-print-directory lint
part "tests without services" "$python" -m pytest -m "not live" --numprocesses=2 --dist=loadfile --no-loadscope-reorder
part "tests with services" "$python" -m pytest -m live
part "EasyR1" tests/trainers/easyr1_on_a_cpu/run.sh && sed -i /COEVO_EASYR1/d "$log"  # skipped before, but run now
part "containers" tests/containers/run.sh "$python"

echo "== not run here"
grep -E '^(SKIPPED |skipped: )' "$log" | sort --unique || echo "nothing: everything was run"
rm "$log"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
echo "passed, without what is listed"
