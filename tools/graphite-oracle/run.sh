#!/bin/bash
# Usage: run.sh setup | run.sh eval [JOB.json] | run.sh serve [PORT]
# Environment: PYTHON (an interpreter of Python 3.10 or 3.11), ORACLE_HOME (where the virtual environment is kept),
# ORACLE_BACKEND (memory | whisper), ORACLE_TZ.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${ORACLE_HOME:-$HOME/.cache/chronolith-peers/graphite-oracle}
venv=$home/venv

find_python() {
    for candidate in "${PYTHON:-}" python3.10 /root/.pyenv/versions/3.10.*/bin/python3.10 python3.11; do
        if [ -n "$candidate" ] && command -v "$candidate" > /dev/null && "$candidate" -c 'import venv' 2> /dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "Python 3.10 or 3.11 with venv is missing; set PYTHON" >&2
    exit 1
}

# Wheels are used where the index has them; cairocffi loads libcairo2 of the system.
setup() {
    local stamp=$venv/.requirements
    if [ -f "$stamp" ] && cmp -s "$stamp" "$here/requirements.txt"; then
        return
    fi
    mkdir -p "$home"
    "$(find_python)" -m venv "$venv"
    "$venv/bin/pip" install --quiet --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$stamp"
}

setup >&2
[ "${1:-}" != setup ] || exit 0
ORACLE_DIR=${ORACLE_DIR:-$(mktemp -d)}
export ORACLE_DIR
trap '[ -n "${ORACLE_KEEP:-}" ] || rm -rf "$ORACLE_DIR"' EXIT
PYTHONPATH="$here" "$venv/bin/python" "$here/oracle.py" "$@"
