#!/usr/bin/env bash
# tapasctl against a real tapasd: exit codes, and what goes to stdout and stderr.
# usage: ctl_test.sh SOURCE_DIR BIN_DIR
set -euo pipefail
source_dir=${1:?source folder} bin=${2:?folder of the programs}
examples=$source_dir/config/examples
dir=$(mktemp -d /tmp/tapas-ctl.XXXXXX)
daemon=
cleanup() {
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  rm -rf "$dir"
}
trap cleanup EXIT
export TAPAS_SOCKET=$dir/tapasd.sock NO_COLOR=1
failures=0

# expect STATUS TEXT ARGS...: TEXT must be in the output; data on stdout only when it worked.
expect() {
  local wanted=$1 text=$2 status=0
  shift 2
  "$bin/tapasctl" "$@" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
  if [ $status -ne "$wanted" ] || ! grep -qF -- "$text" "$dir/out" "$dir/err"; then
    printf 'FAILED  tapasctl %s: status %s, wanted %s and "%s"\n' "$*" $status "$wanted" "$text"
    cat "$dir/out" "$dir/err"
    failures=$((failures + 1))
  else
    echo "ok      tapasctl $*: $wanted"
  fi
}

# ---- without a daemon
expect 2 'no verb "frob"' frob
expect 2 --reason node drain node-0
expect 2 xml status -o xml
expect 3 'systemctl status tapasd' status
expect 0 'Examples:' replan --help
expect 5 'no-such-job.json' solve no-such-job.json
echo '{"schema":"tapas.recording/9"}' >"$dir/newer.jsonl"
expect 1 'tapas.recording/1' replay "$dir/newer.jsonl"
echo '{"schema":"tapas.recording/1","version":"1","config":{}}' >"$dir/foreign.jsonl"
expect 1 'line 1' replay "$dir/foreign.jsonl"
expect 0 'written to' solve "$examples/gpt-tiny-4x2.json" --out "$dir/plan.json"
expect 0 'is a valid plan' plan check "$dir/plan.json" --job "$examples/gpt-tiny-4x2.json"
jq '.microbatches[0] += 1' "$dir/plan.json" >"$dir/bad.json"
expect 1 'microbatches add up' plan check "$dir/bad.json" --job "$examples/gpt-tiny-4x2.json"
expect 1 '"valid": false' plan check "$dir/bad.json" --job "$examples/gpt-tiny-4x2.json" -o json
jq '.placement[0][0] = .placement[1][0]' "$dir/plan.json" >"$dir/bad.json"
expect 1 'is used by' plan check "$dir/bad.json" --job "$examples/gpt-tiny-4x2.json"
jq '.pp_splits[0] = 1' "$dir/plan.json" >"$dir/bad.json"
expect 1 'pp_splits' plan check "$dir/bad.json" --job "$examples/gpt-tiny-4x2.json"
jq '.limits.device_memory_bytes = 1e6' "$examples/gpt-tiny-4x2.json" >"$dir/small.json"
ln -s "$examples"/*.cluster.json "$examples"/*.xml "$dir"
expect 1 'needs' plan check "$dir/plan.json" --job "$dir/small.json"
expect 1 'GB' solve "$dir/small.json"
expect 0 'microbatches' plan diff "$dir/plan.json" \
  <(jq '.microbatches[0] += 1 | .microbatches[1] -= 1' "$dir/plan.json") \
  --job-file "$examples/gpt-tiny-4x2.json"
tiny=$examples/gpt-tiny-4x2.json
expect 0 'TRIED' whatif "$tiny" --plan "$dir/plan.json" --slow node-1=3 --episode 100000
expect 0 'solving the healthy job first' whatif "$tiny" --slow node-1:1=3 --ms 5
expect 0 '"tapas.proposal/1"' whatif "$tiny" --plan "$dir/plan.json" --send node-2=4 -o json
expect 0 'FULL REPLAN' whatif --full --slow node-0=4 --episode 100000 "$tiny" --plan "$dir/plan.json"
expect 0 '"improves": false' whatif "$tiny" --plan "$dir/plan.json" -o json
expect 5 'did you mean node-1?' whatif "$tiny" --plan "$dir/plan.json" --slow node1=2
expect 5 'did you mean node-2?' whatif "$tiny" --plan "$dir/plan.json" --path node-1,nod-2=2
expect 1 'NAME=FACTOR' whatif "$tiny" --plan "$dir/plan.json" --receive node-1=fast
expect 2 '--ms' whatif "$tiny" --ms 5 --evaluations 5
expect 0 'Examples:' whatif --help
expect 0 'written to' whatif "$tiny" --plan "$dir/plan.json" --slow node-1=3 --episode 100000 \
  --out "$dir/new.json"
expect 0 'is a valid plan' plan check "$dir/new.json" --job "$tiny"
expect 0 'key pair' key new server --dir "$dir"
expect 4 'exists already' key new server --dir "$dir"
expect 0 'share of the step' plan explain "$dir/plan.json" --job "$examples/gpt-tiny-4x2.json"
expect 0 '</svg>' plan explain "$dir/plan.json" --job "$examples/gpt-tiny-4x2.json" -o svg
expect 0 'Ascend-910B' cluster list
expect 0 'is a valid cluster' cluster check "$examples/a800-128x8.cluster.json"
expect 0 '16 devices' cluster new --device H100 --nodes 2
expect 5 'no-such-profile' model import sailor no-such-profile.json
expect 0 '"kind"' model gpt --layers 2 --hidden 256 --heads 4 --sequence 128 --vocabulary 1024
expect 0 'llama3-70b' model list
expect 0 '405.85 billion' model show llama3-405b
expect 0 '"active_parameters"' model show mixtral-8x7b -o json
expect 0 '46.70 billion' model build mixtral-8x7b --sequence 128 -o "$dir/mixtral.json"
expect 0 'valid graph: 34 layers' model check "$dir/mixtral.json"
expect 5 'llama3-8b' model show llama9
expect 0 'mlx5_0' topo show "$examples/topo-a800-8gpu-roce.xml"

# ---- with one
mkdir "$dir/agents"
cat >"$dir/tapasd.json" <<JSON
{"schema": "tapas.tapasd/1", "listen": "tcp://127.0.0.1:*", "server_key": "server.key",
 "agent_keys": "agents", "state_dir": "state", "control_socket": "tapasd.sock",
 "jobs": ["$examples/gpt-tiny-4x2.json"]}
JSON
mkdir "$dir/state"
"$bin/tapasd" --config "$dir/tapasd.json" >"$dir/tapasd.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
  "$bin/tapasctl" plan show >/dev/null 2>&1 && break
  kill -0 $daemon || { cat "$dir/tapasd.log"; exit 1; }
  sleep 0.1
done
expect 0 'auto off' status
expect 0 '"schema": "tapas.status/1"' status -o json
expect 0 'epoch 1' plan show
expect 0 'offline' plan history
expect 5 'epoch' plan show --epoch 99
expect 5 'no-such-job' plan show --job no-such-job
expect 0 'first_plan' explain
expect 0 'plan_active' events
expect 2 'give --yes' replan
expect 5 'did you mean node-1?' node drain node1 --reason test
expect 0 'node-1' node drain node-1 --reason test
expect 0 'drained' node list
expect 0 'node-1' node undrain node-1
expect 2 --reason node pin node-1
expect 0 'node-1 is pinned' node pin node-1 --reason test
expect 0 'pinned' node list
expect 4 'unpin it first' node drain node-1 --reason test
expect 0 'not pinned any more' node unpin node-1
expect 4 'is not pinned' node unpin node-1
expect 0 'is on' auto on --reason test
expect 0 'auto on' status

kill -STOP $daemon
expect 6 'no answer' status
kill -CONT $daemon
expect 0 'auto on' status

[ $failures -eq 0 ] || { echo "$failures failed"; tail -20 "$dir/tapasd.log"; exit 1; }
