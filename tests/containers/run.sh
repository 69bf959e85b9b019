#!/usr/bin/env bash
# `make containers`: builds the images, brings docker-compose.yml up on fresh volumes as docs/deploying.md says, and
# checks what that page promises (tests/containers/test_containers.py). It needs root, a Docker Engine and Compose 2.24.
# Its containers and volumes have their own names and are removed at the end; its ports are those of docs/deploying.md.
# Exit status 77: this machine cannot run it.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${1:-.venv/bin/python}
export COEVO_CONTAINERS_STATE=${COEVO_CONTAINERS_STATE:-/var/tmp/coevo-containers}

refuse() { echo "make containers: $*" >&2; exit 77; }

[ "$(id -u)" = 0 ] || refuse "expected root, got $(id -un): stand-ins for base images are made as root"
hint="On Debian, tests/containers/engine.sh start brings one up beside the machine's own packages"
command -v docker >/dev/null || refuse "there is no program docker here." "$hint"
docker info >/dev/null 2>&1 || refuse "no Docker Engine answers: $(docker info 2>&1 | tail -1)" "$hint"
compose=$(docker compose version --short 2>/dev/null) || refuse "this docker has no Compose (docker compose)." "$hint"
printf '2.24\n%s\n' "${compose#v}" | sort --version-sort --check=quiet || refuse "expected Compose 2.24 or newer, got $compose." "$hint"
docker buildx version >/dev/null 2>&1 || refuse "this docker has no buildx, which builds the images." "$hint"

# Use the real images if a registry has them all, otherwise stand-ins for all of them.
mapfile -t pinned < <(sed -nE 's/^( +image: |FROM )((python|postgres|prom|grafana)[^ ]+).*/\2/p' \
  docker-compose.yml deploy/docker/service.Dockerfile | sort -u)
files=docker-compose.yml
for image in "${pinned[@]}"; do
  docker image inspect "$image" >/dev/null 2>&1 || docker pull --quiet "$image" 2>/dev/null || {
    echo "$image cannot be pulled: stand-ins replace the pinned images, and Grafana is not tested"
    files=$files:$(tests/containers/standins.sh)
    break
  }
done
export COEVO_CONTAINERS_COMPOSE_FILE=$files
exec "$PYTHON" -m pytest tests/containers --capture=no --verbose --exitfirst
