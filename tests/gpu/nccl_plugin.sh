#!/usr/bin/env bash
# NCCL's plugin on real GPUs: a small job with one slow rank, watched and not watched.
# usage: nccl_plugin.sh [FOLDER OF libnccl-profiler-tapas.so]    exit 77 = skipped
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
plugin=$(realpath -m "${1:-$here/../../build/bin}")/libnccl-profiler-tapas.so
python=${PYTHON:-python3}

skip() { echo "skipped: $1"; exit 77; }
[ -f "$plugin" ] || { echo "$plugin is not there: ./dev build makes it"; exit 2; }
command -v nvidia-smi >/dev/null || skip "no nvidia-smi"
gpus=$(nvidia-smi --list-gpus | wc -l)
[ "$gpus" -ge 2 ] || skip "$gpus GPU: a communicator of one rank runs no collective"
"$python" -c 'import sys, torch.cuda.nccl as n; sys.exit(n.version() < (2, 27))' 2>/dev/null ||
  skip "$python has no PyTorch with NCCL 2.27 or later"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/ranks"
for ((rank = 0; rank < gpus; rank++)); do echo "$rank $(hostname -s)"; done >"$dir/list"
failures=0
verdict() {  # NAME COMMAND...
  local name=$1
  shift
  if "$@"; then
    echo "ok      $name"
  else
    echo "FAILED  $name"
    failures=$((failures + 1))
  fi
}
train() {  # LOG [VARIABLE=VALUE...]: the job; its step time goes to LOG.step_s
  local log=$1
  shift
  env "$@" timeout 600 "$python" -m torch.distributed.run --standalone --nproc-per-node "$gpus" \
    "$here/nccl_plugin.py" train "$log.step_s" >"$log" 2>&1
}

watched=(NCCL_PROFILER_PLUGIN="$plugin" NCCL_DEBUG=INFO TAPAS_JOB=gpu-check TAPAS_SESSION=$$
  TAPAS_RANK_DIR="$dir/ranks" TAPAS_NCCL_SETTLE_S=1)
verdict "a job runs without the plugin" train "$dir/off" NCCL_PROFILER_PLUGIN=none
verdict "a job runs with the plugin that cannot work" \
  train "$dir/broken" "${watched[@]}" TAPAS_RANKS=/nowhere
verdict "it says why, once for each rank" \
  test "$(grep -c 'TAPAS: NCCL is not watched: TAPAS_RANKS=/nowhere' "$dir/broken" || true)" = "$gpus"
verdict "a job runs with the plugin, each step measured" \
  train "$dir/each" "${watched[@]}" TAPAS_RANKS="$dir/list" TAPAS_NCCL_EVERY=1
verdict "NCCL loaded it in all ranks" \
  test "$(grep -c 'TAPAS: watches NCCL' "$dir/each" || true)" = "$gpus"
"$python" "$here/nccl_plugin.py" check "$dir/ranks" "$dir/each.step_s" || failures=$((failures + 1))
rm -f "$dir"/ranks/*
verdict "a job runs with the plugin, one step of eight measured" \
  train "$dir/some" "${watched[@]}" TAPAS_RANKS="$dir/list"
"$python" "$here/nccl_plugin.py" compare "$dir/off.step_s" "$dir/some.step_s" "$dir/each.step_s" ||
  failures=$((failures + 1))

[ "$failures" = 0 ] || { tail -n 30 "$dir"/{off,broken,each,some}; exit 1; }
echo "all good on $gpus GPUs"
