#!/usr/bin/env bash
# A Python with numpy for the tests that read stores from Python; prints its path.
#
#   tests/python-env.sh            prints the interpreter; exit 0 when it has numpy
#
# It is a virtual environment in $CBTOP_PYTHON, else ${XDG_CACHE_HOME:-~/.cache}/cbtop/python, made once from PyPI. Where
# that cannot be made, the system's python3 is taken if it has numpy.
set -euo pipefail

numpy=2.4.6
env=${CBTOP_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/cbtop/python}
python=$env/bin/python3

has_numpy() { # PYTHON
    "$1" -c 'import numpy' > /dev/null 2>&1
}

make() {
    mkdir -p "$(dirname "$env")"
    # Made under another name: a run that is stopped half-way leaves nothing that looks whole.
    local work
    work=$(mktemp -d "$env.XXXXXX")
    trap 'rm -rf "$work"' RETURN
    python3 -m venv "$work" >&2 || return 1
    # Older Pythons have no such numpy; what the stores need is in every one.
    "$work/bin/python3" -m pip install --quiet "numpy==$numpy" >&2 ||
        "$work/bin/python3" -m pip install --quiet "numpy>=1.21" >&2 || return 1
    rm -rf "$env"
    # A virtual environment's interpreter finds its packages from where it stands, so it can be moved.
    mv "$work" "$env"
}

if ! has_numpy "$python"; then
    echo "making $env with numpy" >&2
    make || true
fi
if has_numpy "$python"; then
    echo "$python"
elif has_numpy python3; then
    command -v python3
else
    echo "no Python with numpy: neither $env could be made nor has python3 it" >&2
    exit 1
fi
