#!/bin/sh
# A Ray node opens many files: as many as it may, up to what Ray recommends, where Docker's soft limit is often 1024.
# shellcheck disable=SC3045  # Debian's sh has it
ulimit -S -n 65536 2>/dev/null || ulimit -S -n "$(ulimit -H -n)"
exec "$@"
