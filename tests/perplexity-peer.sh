#!/usr/bin/env bash
# Compares `cbtop perplexity` with llama.cpp on real models and a real text, README and the book.
#
#   tests/perplexity-peer.sh [CBTOP]     CBTOP: the program, by default target/release/cbtop, else target/debug/cbtop
#
# WINDOWS (default 8) windows of N_CTX (default 512) tokens. Figures must agree within 1%. llama.cpp is the Python that
# $CBTOP_PEER_PYTHON names, else ~/.cache/cbtop/peer/bin/python3, with llama-cpp-python (made with 0.3.36) and numpy; models
# are those of tests/fetch-models.sh. What is not there is skipped with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/cbtop
python=${CBTOP_PEER_PYTHON:-$cache/peer/bin/python3}
cbtop=${1:-target/release/cbtop}
[ -x "$cbtop" ] || cbtop=target/debug/cbtop
windows=${WINDOWS:-8}
n_ctx=${N_CTX:-512}
threads=${THREADS:-2}

if ! "$python" -c 'import llama_cpp, numpy' 2> /dev/null; then
    echo "skipped: $python has no llama_cpp; make it with: python3 -m venv $cache/peer && CMAKE_ARGS=-DGGML_NATIVE=ON $cache/peer/bin/pip install llama-cpp-python==0.3.36"
    exit 0
fi

text=$(mktemp)
trap 'rm -f "$text" "$text.ours" "$text.theirs"' EXIT
cat README.md docs/src/*.md > "$text"

failed=0
for file in SmolLM2-135M-Instruct.Q4_1.gguf gemma-3-270m-q4_k_m.gguf; do
    model=${CBTOP_MODELS:-$cache/models}/$file
    if [ ! -f "$model" ]; then
        echo "skipped: $model is not there; run tests/fetch-models.sh"
        continue
    fi
    "$cbtop" perplexity -m "$model" -f "$text" -c "$n_ctx" --chunks "$windows" -t "$threads" --format json > "$text.ours"
    "$python" tests/perplexity_peer.py "$model" "$text" "$n_ctx" "$windows" "$threads" > "$text.theirs"
    "$python" - "$file" "$text.ours" "$text.theirs" <<'PY' || failed=1
import json, sys
name, ours, theirs = sys.argv[1], *(json.load(open(p)) for p in sys.argv[2:])
for key in ("tokens", "windows", "scored"):
    assert ours[key] == theirs[key], (key, ours[key], theirs[key])
by = ours["perplexity"] / theirs["perplexity"] - 1
print(f"{name}: cbtop {ours['perplexity']:.4f} +/- {ours['error']:.4f}, {theirs['build']} {theirs['perplexity']:.4f} +/- {theirs['error']:.4f}, {100 * by:+.3f}% ({ours['scored']} tokens scored)")
sys.exit(abs(by) > 0.01)
PY
done
exit $failed
