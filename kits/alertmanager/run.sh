#!/usr/bin/env bash
# Notifications to real Alertmanagers: fires, resolves, groups; TLS with basic auth; one that hangs, one that is down.
#   run.sh     (environment: ALERTMANAGER=BINARY instead of Debian's, DOWN_SECONDS=300 for the one that is down)
set -euo pipefail
cd "$(dirname "$0")/../.."
alertmanager=${ALERTMANAGER:-$(command -v prometheus-alertmanager || true)}
if [ -z "$alertmanager" ]; then
  echo "not run: there is no prometheus-alertmanager (apt-get install prometheus-alertmanager)"
  exit 2
fi
"$alertmanager" --version 2>&1 | head -1
if ALERTMANAGER=$alertmanager cargo test -q -p chronolith-server --test it alertmanager -- --ignored --nocapture; then
  echo "1 passed, 0 failed"
else
  echo "0 passed, 1 failed"
  exit 1
fi
