#!/usr/bin/env bash
# Makes stand-ins for the images that are pinned in docker-compose.yml and in deploy/docker, for machines that reach
# Debian's and Python's packages but no image registry:
#
#   tests/containers/standins.sh   # as root; prints the Compose file that replaces the pinned images with them
#
# They are named coevo-stand-in/…, so that nobody takes them for the real ones:
#
#   python      Debian 12 with its own Python 3.11, this machine's configuration of pip, and the certificates it trusts
#   postgres    Debian 13 with its own PostgreSQL 17, and tests/containers/postgres-entrypoint.sh
#   prometheus  a newer Debian's Prometheus, with busybox
#   grafana     NOT Grafana: busybox, which answers the health check and nothing else
set -euo pipefail
STATE=${COEVO_CONTAINERS_STATE:-/var/tmp/coevo-containers}
HERE=$(cd "$(dirname "$0")" && pwd)
CHECKOUT=$(cd "$HERE/../.." && pwd)
PREFIX=coevo-stand-in
LABEL='LABEL coevo.stand-in=yes'
MIRROR=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -1)
SYSTEM_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ "$(id -u)" = 0 ] || { echo "standins.sh: only root may make a Debian folder" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "standins.sh: debootstrap is missing (apt-get install debootstrap)" >&2; exit 2; }
[ -n "$MIRROR" ] || { echo "standins.sh: expected a Debian machine, with its mirror in debian.sources" >&2; exit 2; }
mkdir -p "$STATE"

debian() {  # arguments: suite, packages. Prints a folder with that Debian, which is made only once.
  local root=$STATE/root-$1
  if [ ! -e "$root/.complete" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase --include="$2" "$1" "$root" "$MIRROR" /usr/share/debootstrap/scripts/sid >&2
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    touch "$root/.complete"
  fi
  echo "$root"
}

import() {  # arguments: folder, name, changes to the image…
  local folder=$1 name=$2 changes=()
  shift 2
  for change in "$LABEL" "$@"; do changes+=(-c "$change"); done
  tar -C "$folder" --exclude='./proc/*' --exclude='./sys/*' -c . | docker import "${changes[@]}" - "$PREFIX/$name" >/dev/null
  echo "made $PREFIX/$name" >&2
}

python() {
  local root
  root=$(debian bookworm python3,python3-venv,ca-certificates)
  ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/" && : > "$root/etc/apt/sources.list"
  # If this machine's pip finds wheels in a folder, copy it to the same path, so that the build finds them too.
  local wheels
  wheels=${PIP_FIND_LINKS:-$(python3 -m pip config get global.find-links 2>/dev/null || true)}
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\ntimeout = 180\n' > "$root/etc/pip.conf"
  if [ -d "$wheels" ]; then
    mkdir -p "$root$wheels" && cp -ru "$wheels/." "$root$wheels/"
    printf 'find-links = %s\n' "$wheels" >> "$root/etc/pip.conf"
  fi
  import "$root" python:3.11 "ENV PATH=$SYSTEM_PATH" 'CMD ["python"]'
}

postgres() {
  local root
  root=$(debian trixie postgresql-17,postgresql-client-17,ca-certificates)
  chroot "$root" bash -ec '
    pg_dropcluster --stop 17 main 2>/dev/null || true
    id -u postgres | grep -qx 999 || { groupmod -g 999 postgres; usermod -u 999 -g 999 postgres; }
    install -d -o 999 -g 999 -m 0700 /var/lib/postgresql/data
    install -d -o 999 -g 999 -m 3777 /var/run/postgresql
    install -d /docker-entrypoint-initdb.d'
  install -m 755 "$HERE/postgres-entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
  import "$root" postgres:17 "ENV PATH=$SYSTEM_PATH:/usr/lib/postgresql/17/bin" 'ENV PGDATA=/var/lib/postgresql/data' \
    'VOLUME /var/lib/postgresql/data' 'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["postgres"]' 'STOPSIGNAL SIGINT'
}

busybox_in() {  # argument: folder. Puts busybox into its /bin, with the names that it is called by.
  local unpacked
  unpacked=$(mktemp -d "$STATE/busybox.XXXX")
  (cd "$unpacked" && apt-get download busybox-static >/dev/null 2>&1 && dpkg-deb -x busybox-static_*.deb .)
  mkdir -p "$1/bin" "$1/tmp" && chmod 755 "$1" && chmod 1777 "$1/tmp"
  install -m 755 "$(find "$unpacked" -path "*bin/busybox" -type f | head -1)" "$1/bin/busybox"
  rm -rf "$unpacked"
  for name in sh wget ls cat id touch httpd; do ln -sf busybox "$1/bin/$name"; done
}

prometheus() {
  local newer work
  newer=$(debian forky docker.io,docker-cli,docker-compose,docker-buildx,iptables,ca-certificates,procps,prometheus)
  work=$(mktemp -d "$STATE/prometheus.XXXX")
  busybox_in "$work"
  cp "$newer"/usr/bin/prom{etheus,tool} "$work/bin/"
  for library in $(chroot "$newer" ldd /usr/bin/prometheus | grep -oE '/[^ ]+\.so[^ ]*'); do
    install -D "$newer$library" "$work$library"
  done
  mkdir -p "$work/etc/prometheus"
  install -d -o 65534 -g 65534 "$work/prometheus"
  import "$work" prometheus:3 'ENV PATH=/bin' 'USER 65534' 'WORKDIR /prometheus' 'VOLUME /prometheus' \
    'ENTRYPOINT ["/bin/prometheus"]'
  rm -rf "$work"
}

grafana() {
  local work
  work=$(mktemp -d "$STATE/grafana.XXXX")
  busybox_in "$work"
  mkdir -p "$work/www/api" "$work/etc/grafana"
  echo '{"database": "no Grafana, a stand-in"}' > "$work/www/api/health"
  install -d -o 472 -g 0 "$work/var/lib/grafana"
  import "$work" not-grafana:0 'ENV PATH=/bin' 'USER 472' 'ENTRYPOINT ["/bin/httpd", "-f", "-p", "3000", "-h", "/www"]'
  rm -rf "$work"
}

compose_file() {  # prints a Compose file with the stand-ins; builds find them by the names in the Dockerfile
  local pinned index=
  pinned=$(sed -nE 's/^FROM (python:\S+).*/\1/p' "$CHECKOUT/deploy/docker/service.Dockerfile" | sort -u)
  curl --silent --fail --head --max-time 20 --output /dev/null https://download.pytorch.org/whl/cpu/ || index=none
  echo "services:"
  echo "  migrate:"  # this service builds the image
  echo "    build:"
  echo "      additional_contexts:"
  for image in $pinned; do echo "        \"$image\": docker-image://$PREFIX/python:3.11"; done
  [ -z "$index" ] || printf '      args:\n        TORCH_INDEX: ""\n'
  printf '  postgres:\n    image: %s\n' "$PREFIX/postgres:17"
  printf '  prometheus:\n    image: %s\n' "$PREFIX/prometheus:3"
  printf '  grafana:\n    image: %s\n' "$PREFIX/not-grafana:0"
}

for image in python:3.11 postgres:17 prometheus:3 not-grafana:0; do
  name=${image%:*}
  docker image inspect "$PREFIX/$image" >/dev/null 2>&1 || "${name#not-}"
done
compose_file > "$STATE/stand-ins.yml"
echo "$STATE/stand-ins.yml"
