#!/usr/bin/env bash
# cbtop against llama.cpp on one model: both in the same run, turn and turn about, so that drift of the machine hits both.
#
#   tests/compare-peer.sh MODEL THREADS
#
# Environment: ROUNDS (7), PP (512), TG (128), DEPTH (0), CBTOP (target/release/cbtop), PEER_PYTHON (python3 with
# llama-cpp-python). Every round is one warmed-up repetition of each side in a process of its own; the side that begins
# alternates. Prints the medians, the quartiles and the median of the rounds' ratios. The exit code says nothing about
# speed.
set -euo pipefail

if [ $# -ne 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
model=$1 threads=$2
rounds=${ROUNDS:-7} pp=${PP:-512} tg=${TG:-128} depth=${DEPTH:-0}
cbtop=${CBTOP:-${CARGO_TARGET_DIR:-$here/../target}/release/cbtop}
peer=${PEER_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ours() {
    "$cbtop" bench -m "$model" -p "$pp" -n "$tg" -d "$depth" -t "$threads" -r 1 -o jsonl >> "$work/ours"
}
theirs() {
    "$peer" "$here/peer-decode.py" -m "$model" -p "$pp" -n "$tg" -d "$depth" -t "$threads" -r 1 >> "$work/theirs" 2> "$work/log" \
        || { cat "$work/log" >&2; exit 1; }
}

for round in $(seq "$rounds"); do
    if [ $((round % 2)) -eq 1 ]; then ours; theirs; else theirs; ours; fi
done

python3 - "$work" "$model" "$threads" <<'PY'
import json, statistics, sys
work, model, threads = sys.argv[1:]
ours = {}
for line in open(f"{work}/ours"):
    row = json.loads(line)
    name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
    ours.setdefault(name, []).extend(row["samples_ts"])
theirs = {}
for line in open(f"{work}/theirs"):
    for name, samples in json.loads(line).items():
        theirs.setdefault(name, []).extend(samples)

def spread(values):
    if len(values) < 2:
        return f"{values[0]:8.2f}"
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{statistics.median(values):8.2f} ({low:.2f} to {high:.2f})"

print(f"{model}, {threads} thread(s), {len(next(iter(ours.values())))} rounds; tokens a second, median (quartiles)")
for name in ours:
    ratios = [a / b for a, b in zip(ours[name], theirs[name])]
    print(f"  {name:<6} cbtop {spread(ours[name])}   llama.cpp {spread(theirs[name])}   ratio {spread(ratios).strip()}")
PY
