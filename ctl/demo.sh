#!/usr/bin/env bash
# Runs the whole loop on GPT-3 175B over 128 emulated nodes: ./dev demo [--keep]
set -euo pipefail

usage="usage: ctl/demo.sh BIN_DIR [--keep]"
bin=$(cd "${1:?$usage}" && pwd)
keep=no
case ${2:-} in
  "") ;;
  --keep) keep=yes ;;
  *) echo "$usage" >&2; exit 2 ;;
esac

readonly slow_index=37 slowdown=1.6 speed=70 allowed_ratio=1.10
job=$(cd "$(dirname "$0")/.." && pwd)/config/examples/gpt3-175b-a800-1024.json
dir=$(mktemp -d /tmp/tapas-demo.XXXXXX)  # short: the socket's path has to fit into 107 bytes
export TAPAS_SOCKET=$dir/tapasd.sock
pids=()
started_at=$SECONDS

# ---- talking

terminal=no
bold='' plain=''
if [ -t 1 ]; then
  terminal=yes
  [ -n "${NO_COLOR:-}" ] || bold=$'\033[1m' plain=$'\033[0m'
fi
number=0
step() { number=$((number + 1)); printf '\n%s%d  %s%s\n' "$bold" "$number" "$*" "$plain"; }
say() { printf '   %s\n' "$*"; }
indent() { sed 's/^/   /'; }
progress_at=0
progress() {  # one line that changes on a terminal, a line now and then elsewhere
  if [ $terminal = yes ]; then
    printf '\r\033[K   %s' "$*"
  elif [ $((SECONDS - progress_at)) -ge 5 ]; then
    progress_at=$SECONDS
    say "$*"
  fi
}
progress_end() { [ $terminal = no ] || printf '\r\033[K'; }
fail() {
  progress_end
  printf '\n%sdemo failed: %s%s\n' "$bold" "$*" "$plain" >&2
  printf 'Logs, journal and truth are in %s (tapasd.log, twin.log, truth.jsonl, state/)\n' "$dir" >&2
  exit 1
}

# ---- starting and stopping

stop_all() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
}
at_exit() {
  local status=$?
  [ $status -eq 0 ] && [ $keep = yes ] && return
  stop_all
  case $status in 0 | 130) rm -rf "$dir" ;; esac
}
trap at_exit EXIT
trap 'exit 130' INT TERM

free_port() {
  local port
  for port in $(seq 5570 5669); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
  return 1
}
alive() { kill -0 "$1" 2>/dev/null; }
tapasctl() { "$bin/tapasctl" "$@"; }
status() { tapasctl status -o json 2>/dev/null || echo '{}'; }
events_since() { tapasctl events --after "$1" --limit 1000 -o json 2>/dev/null || echo '{"events":[]}'; }

# ---- the demo

step "tapasctl finds the plan for GPT-3 175B on 128 nodes x 8 A800"
tapasctl solve "$job" --out "$dir/plan.json" >"$dir/solve.txt" 2>"$dir/solve.err" ||
  { cat "$dir/solve.err" >&2; fail "no plan was found"; }
indent <"$dir/solve.txt"
tapasctl plan check "$dir/plan.json" --job "$job" 2>&1 | tail -1 | indent
mapfile -t nodes < <(jq -r '.placement[][].node' "$dir/plan.json" | sort -u)
slow_node=${nodes[$slow_index]}

step "Keys for ${#nodes[@]} nodes; tapasd starts and holds the plan"
mkdir "$dir/agents" "$dir/keys" "$dir/state"
tapasctl key new server --dir "$dir" 2>/dev/null
tapasctl key new "${nodes[@]}" --dir "$dir/keys" 2>/dev/null
for node in "${nodes[@]}"; do mv "$dir/keys/$node.pub" "$dir/agents/"; done
port=$(free_port) || fail "no free port between 5570 and 5669"
cat >"$dir/tapasd.json" <<JSON
{
  "schema": "tapas.tapasd/1",
  "listen": "tcp://127.0.0.1:$port",
  "server_key": "server.key",
  "agent_keys": "agents",
  "state_dir": "state",
  "control_socket": "tapasd.sock",
  "jobs": ["$job"],
  "auto_replan": true
}
JSON
setsid "$bin/tapasd" --config "$dir/tapasd.json" >"$dir/tapasd.log" 2>&1 </dev/null &
daemon_pid=$!
pids+=("$daemon_pid")
deadline=$((SECONDS + 60))
until [ "$(status | jq '.jobs[0].epoch // 0')" -ge 1 ]; do
  alive $daemon_pid || fail "tapasd stopped: $(tail -1 "$dir/tapasd.log")"
  [ $SECONDS -lt $deadline ] || fail "tapasd holds no plan after 60 s"
  progress "$(status | jq -r '.jobs[0].phase // "starting"')"
  sleep 0.2
done
progress_end
status | jq -r '.jobs[0] | "epoch \(.epoch): TP \(.shape.tp) x PP \(.shape.pp) x DP \(.shape.dp), predicted step \(.predicted_step_s * 100 | round / 100) s"' | indent

step "The fleet connects and trains, at $speed times real time; tapasd learns the healthy level"
mkfifo "$dir/twin.in"
setsid "$bin/tapas-twin" --job "$job" --daemon "tcp://127.0.0.1:$port" --server-key "$dir/server.pub" \
  --keys "$dir/keys" --speed $speed --report "$dir/truth.jsonl" \
  <>"$dir/twin.in" >"$dir/twin.out" 2>"$dir/twin.log" &
twin_pid=$!
pids+=("$twin_pid")
deadline=$((SECONDS + 120))
until status | jq -e '.jobs[0] | .phase == "watching" and .healthy_step_s > 0' >/dev/null; do
  alive $daemon_pid || fail "tapasd stopped: $(tail -1 "$dir/tapasd.log")"
  alive $twin_pid || fail "tapas-twin stopped: $(tail -1 "$dir/twin.log")"
  [ $SECONDS -lt $deadline ] || fail "the healthy level is not learnt after 120 s"
  progress "$(status | jq -r '"\([.agents[] | select(.connected)] | length) agents, step \(.jobs[0].last_step), \(.jobs[0].phase)"')"
  sleep 0.3
done
progress_end
status | jq -r '"\([.agents[] | select(.connected)] | length) agents; healthy step \(.jobs[0].healthy_step_s * 100 | round / 100) s at step \(.jobs[0].last_step)"' | indent
first_event=$(events_since 0 | jq '.last // 0')

step "Node $slow_node now takes $slowdown times as long to compute"
echo "slow $slow_node $slowdown" >"$dir/twin.in"
say "$ echo 'slow $slow_node $slowdown' > twin.in"

step "Verdict, decision, switch, verification: tapasctl events --follow"
"$bin/tapasctl" events --follow --after "$first_event" > >(sed -u 's/^/   /') 2>/dev/null &
follower_pid=$!
pids+=("$follower_pid")
deadline=$((SECONDS + 150))
until events_since "$first_event" | jq -e 'any(.events[]; .kind == "verify")' >/dev/null; do
  alive $daemon_pid || fail "tapasd stopped: $(tail -1 "$dir/tapasd.log")"
  alive $twin_pid || fail "tapas-twin stopped: $(tail -1 "$dir/twin.log")"
  [ $SECONDS -lt $deadline ] || fail "no switch was verified after 150 s"
  sleep 0.3
done
sleep 0.5  # the follower prints the last line
kill $follower_pid 2>/dev/null || true
wait $follower_pid 2>/dev/null || true
pids=("$daemon_pid" "$twin_pid")

step "Why, and what it gained: tapasctl explain"
decision=$(tapasctl explain --limit 50 -o json |
  jq '[.decisions[] | select(.evidence.verify != null)][0] // empty')
[ -n "$decision" ] || fail "no decision led to a switch"
evidence() { jq -r ".evidence.$1 // empty" <<<"$decision"; }
tapasctl explain --decision "$(jq .decision <<<"$decision")" | indent

truth=$(jq -s --arg node "$slow_node" '
  def median: sort | if length == 0 then null else .[length / 2 | floor] end;
  map(select(.kind == "step" and .flags == 0)) as $steps
  | (map(select(.kind == "switch" and .committed)) | first) as $switch
  | ($steps | map(select(.slowed | length == 0)) | map(.step_time_s) | median) as $healthy
  | ($steps | map(select((.slowed | length > 0) and .epoch == $switch.from_epoch)) | map(.step_time_s) | median) as $slow
  | ($steps | map(select((.slowed | length > 0) and .epoch == $switch.epoch)) | map(.step_time_s) | median) as $after
  | {healthy: $healthy, slow: $slow, after: $after, pause: $switch.pause_s, bytes: $switch.bytes}
' "$dir/truth.jsonl")
number_of() { jq -r ".$1 // \"-\" | if type == \"number\" then . * 1000 | round / 1000 else . end" <<<"$truth"; }
seen() { evidence "$1" | jq -r '. * 1000 | round / 1000'; }
printf '\n   %-28s %14s %14s\n' "" "tapasd's view" "twin's truth"
printf '   %-28s %12s s %12s s\n' "healthy step" "$(seen healthy_step_s)" "$(number_of healthy)" \
  "step with the slow node" "$(seen slow_step_s)" "$(number_of slow)" \
  "step after the switch" "$(seen observed_after_s)" "$(number_of after)" \
  "pause of the switch" "$(seen switch_s)" "$(number_of pause)"
printf '   %-28s %11.1f GB %11.1f GB\n' "moved" \
  "$(evidence bytes_moved | jq '. / 1e9')" "$(jq '.bytes / 1e9' <<<"$truth")"
printf '   %-28s %12s s\n' "bound, no plan is faster" "$(seen lower_bound_s)"

step "Checks"
failed=0
facts=$(jq -n --argjson decision "$decision" --argjson truth "$truth" '$decision.evidence + {truth: $truth}')
check() {  # CONDITION SENTENCE; the condition is jq on the decision's evidence and .truth
  if jq -e "$1" <<<"$facts" >/dev/null; then
    say "ok      $2"
  else
    say "FAILED  $2"
    failed=$((failed + 1))
  fi
}
ratio=$(jq '.observed_after_s / .lower_bound_s * 1000 | round / 1000' <<<"$facts")
true_ratio=$(jq '.truth.after / .lower_bound_s * 1000 | round / 1000' <<<"$facts")
check ".node == \"$slow_node\"" "the node named is the one that was slowed: $(evidence node)"
check ".observed_after_s <= $allowed_ratio * .lower_bound_s" \
  "the step after the switch is at most $allowed_ratio times the bound: $ratio"
check ".truth.after <= $allowed_ratio * .lower_bound_s" "and so it is by the twin's own clock: $true_ratio"
check ".truth.after < .truth.slow" \
  "the job is faster than before the switch: $(number_of after) s, was $(number_of slow) s"
check '.verify == "kept"' "the new plan was verified and kept"
kinds=$(events_since 0 | jq -c '[.events[].kind] | unique')
for kind in agent_connected plan_active healthy verdict decision switch_phase verify; do
  jq -e "index(\"$kind\")" <<<"$kinds" >/dev/null ||
    { say "FAILED  no event \"$kind\" in the journal"; failed=$((failed + 1)); }
done
for pid in "${pids[@]}"; do alive "$pid" || fail "a program stopped on the way"; done
[ $failed -eq 0 ] || fail "$failed of the checks above"
say "ok      every stage of the loop is in the journal"
say ""
say "The whole loop took $((SECONDS - started_at)) s."

if [ $keep = yes ]; then
  cat <<TEXT

It goes on running. To play with it:
   export TAPAS_SOCKET=$dir/tapasd.sock PATH=$bin:\$PATH
   tapasctl status
   tapasctl events --follow
   echo 'heal $slow_node' > $dir/twin.in          # also: slow NODE FACTOR, link NODE send FACTOR, kill-agent NODE
   tapasctl plan diff 1 2 --job-file $job
To stop it:
   kill $twin_pid $daemon_pid && rm -r $dir
TEXT
fi
