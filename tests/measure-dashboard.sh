#!/usr/bin/env bash
# CPU time of the real dashboard in a terminal (tmux, 120x40): of its drawing thread while a model runs, and of the whole
# program while it is paused.
#
#   tests/measure-dashboard.sh [cbtop arguments, for example --model FILE --threads 1]
#
# Environment: SECONDS_EACH (20), CBTOP (target/release/cbtop). Reads /proc, so Linux only. What the dashboard costs in
# tokens a second is measured by `cargo run --release --example dashboard_cost`.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cbtop=${CBTOP:-${CARGO_TARGET_DIR:-$here/../target}/release/cbtop}
seconds=${SECONDS_EACH:-20}
socket=cbtop-measure-$$
tick=$(getconf CLK_TCK)

tmux -L "$socket" -f /dev/null new-session -d -x 120 -y 40 "exec $(printf '%q ' "$cbtop" --loop "$@")"
trap 'tmux -L "$socket" kill-server 2>/dev/null || true' EXIT
pid=$(tmux -L "$socket" list-panes -F '#{pane_pid}')

ticks() { # of a stat file: user and system time
    sed 's/.*) //' "$1" | awk '{ print $12 + $13 }'
}
share() { # of a stat file, percent of one core over the measuring time
    local before after
    before=$(ticks "$1")
    sleep "$seconds"
    after=$(ticks "$1")
    awk -v t=$((after - before)) -v hz="$tick" -v s="$seconds" 'BEGIN { printf "%.2f", 100 * t / hz / s }'
}

sleep 3
if ! [ -r "/proc/$pid/stat" ]; then
    echo "the dashboard did not stay up; try: $cbtop --loop $*" >&2
    exit 1
fi
# The main thread reads keys and draws; the session and the engine have threads of their own.
echo "running: drawing thread $(share "/proc/$pid/task/$pid/stat")% of a core over $seconds s"
tmux -L "$socket" send-keys Space
sleep 1
echo "paused:  whole program  $(share "/proc/$pid/stat")% of a core over $seconds s"
tmux -L "$socket" capture-pane -p | sed -n 1,3p
tmux -L "$socket" send-keys q
