#!/usr/bin/env bash
# Starts a Docker Engine with Compose for `make containers`, on a Debian machine whose own is missing or too old:
#
#   tests/containers/engine.sh start     # as root; then PATH=$STATE/bin:$PATH
#   tests/containers/engine.sh stop
#
# The programs are a newer Debian's, in their own folder. The daemon and the command line run in a mount namespace where
# that folder's /usr replaces the machine's; every other path is the machine's. Nothing is installed on the machine. All
# files that it makes are in $STATE, images and volumes in $STATE/data.
set -euo pipefail
STATE=${COEVO_CONTAINERS_STATE:-/var/tmp/coevo-containers}
SUITE=forky
ROOT=$STATE/root-$SUITE
PACKAGES=docker.io,docker-cli,docker-compose,docker-buildx,iptables,ca-certificates,procps,prometheus
mirror() { sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -1; }

start() {
  [ "$(id -u)" = 0 ] || { echo "engine.sh: only root may start a Docker daemon" >&2; exit 2; }
  command -v debootstrap >/dev/null || { echo "engine.sh: debootstrap is missing (apt-get install debootstrap)" >&2; exit 2; }
  mkdir -p "$STATE/bin" "$STATE/data"
  if [ ! -e "$ROOT/.complete" ]; then
    rm -rf "$ROOT"
    # This machine's debootstrap may not know the suite, so use sid's script.
    debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$ROOT" "$(mirror)" /usr/share/debootstrap/scripts/sid
    touch "$ROOT/.complete"
  fi
  # shellcheck disable=SC2016  # expanded in the namespace
  setsid unshare --mount --propagation private bash -ec '
    mount --bind "$0/etc/alternatives" /etc/alternatives
    mount --bind "$0/etc/ld.so.cache" /etc/ld.so.cache
    mount --bind "$0/usr" /usr
    exec /usr/sbin/dockerd --data-root="$1/data" --pidfile="$1/dockerd.pid"' "$ROOT" "$STATE" \
    >"$STATE/dockerd.log" 2>&1 &
  cat > "$STATE/bin/docker" <<SH
#!/bin/sh
exec nsenter --target "\$(cat $STATE/dockerd.pid)" --mount --wdns="\$PWD" /usr/bin/docker "\$@"
SH
  chmod +x "$STATE/bin/docker"
  for _ in $(seq 60); do
    if "$STATE/bin/docker" info >/dev/null 2>&1; then
      # With control groups of version 1 all containers together would get only one process's share of the processor.
      if [ -d /sys/fs/cgroup/cpu ]; then mkdir -p /sys/fs/cgroup/cpu/docker && echo 8192 > /sys/fs/cgroup/cpu/docker/cpu.shares; fi
      echo "Docker runs: PATH=$STATE/bin:\$PATH"
      return
    fi
    sleep 1
  done
  echo "engine.sh: the daemon did not answer in a minute; its log is $STATE/dockerd.log" >&2
  exit 1
}

stop() {
  [ -e "$STATE/dockerd.pid" ] || { echo "no daemon of $STATE runs"; return; }
  local pid
  pid=$(cat "$STATE/dockerd.pid")
  kill "$pid"
  for _ in $(seq 60); do [ -e "/proc/$pid" ] || { echo "the daemon ended"; return; }; sleep 1; done
  echo "engine.sh: the daemon ($pid) has not ended in a minute" >&2
  exit 1
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  *) echo "usage: $0 start|stop" >&2; exit 2 ;;
esac
