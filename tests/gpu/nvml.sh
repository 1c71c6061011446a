#!/usr/bin/env bash
# Compares what `tapas-agent health` tells of each GPU with what nvidia-smi does, a line for each field.
# Usage: tests/gpu/nvml.sh [folder of the programs]
set -euo pipefail
cd "$(dirname "$0")/../.."

programs=${1:-build/bin}
command -v nvidia-smi > /dev/null || { echo "skipped: there is no nvidia-smi"; exit 77; }
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

fields=index,uuid,name,pci.bus_id,driver_version,clocks.max.sm,clocks.max.mem,clocks.sm,temperature.gpu
fields+=,power.draw,enforced.power.limit,ecc.mode.current,ecc.errors.corrected.volatile.total
fields+=,ecc.errors.uncorrected.volatile.total,pcie.link.gen.max,pcie.link.width.max,mig.mode.current

"$programs/tapas-agent" health -o json --timeout 60 >"$work/health.json"
nvidia-smi --query-gpu="$fields" --format=csv,nounits,noheader >"$work/smi.csv"
nvidia-smi nvlink --status >"$work/links.txt" || true # Fails where there are none.
nvidia-smi -L >"$work/list.txt"

python3 - "$work" "$fields" <<'PYTHON'
import csv
import json
import re
import sys

work = sys.argv[1]
health = json.load(open(f"{work}/health.json"))
rows = list(csv.DictReader(open(f"{work}/smi.csv"), sys.argv[2].split(","), skipinitialspace=True))
failed = 0


def check(what, ours, theirs, tolerance=0.0):
    global failed
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        good = abs(ours - theirs) <= tolerance
    else:
        good = ours == theirs
    failed += not good
    print(f"{'pass' if good else 'FAIL'} {what}: {ours!r}" + ("" if good else f", nvidia-smi {theirs!r}"))


def number(text):
    return float(text) if re.fullmatch(r"-?[0-9.]+", text) else None


def switch(text):
    return {"Enabled": True, "Disabled": False}.get(text)


def by_gpu(path, pattern):
    """What `pattern` finds below each line that begins with "GPU N:"."""
    found, gpu = {}, None
    for line in open(path):
        if begin := re.match(r"GPU (\d+):", line):
            gpu = int(begin[1])
        elif match := re.search(pattern, line):
            found.setdefault(gpu, []).append(match[1])
    return found


links = by_gpu(f"{work}/links.txt", r"Link \d+: (.*)")
instances = by_gpu(f"{work}/list.txt", r"UUID: (MIG-[^)]*)\)")
gpus = {pci["nvml"]["uuid"]: pci for pci in health["pci"] if pci["nvml"]}
check("number of GPUs", len(gpus), len(rows))
for row in rows:
    name = f"GPU {row['index']}"
    pci = gpus.get(row["uuid"])
    if pci is None:
        check(f"{name} uuid", None, row["uuid"])
        continue
    nvml = pci["nvml"]
    index = int(row["index"])
    check(f"{name} index", nvml["index"], index)
    check(f"{name} address", pci["name"], re.sub("^0000(?=....:)", "", row["pci.bus_id"].lower()))
    check(f"{name} model", nvml["model"], row["name"])
    check(f"{name} driver", health["driver"], row["driver_version"])
    check(f"{name} sm_max_mhz", nvml["sm_max_mhz"], number(row["clocks.max.sm"]))
    check(f"{name} memory_max_mhz", nvml["memory_max_mhz"], number(row["clocks.max.mem"]))
    # Idle GPUs change these at any moment; they have to be of the same size only.
    check(f"{name} sm_mhz", nvml["sm_mhz"], number(row["clocks.sm"]), 2000)
    check(f"{name} temperature_c", nvml["temperature_c"], number(row["temperature.gpu"]), 10)
    for ours, theirs, slack in (("power_mw", "power.draw", 150), ("power_limit_mw", "enforced.power.limit", 1)):
        milliwatts = nvml[ours]
        check(f"{name} {ours}", milliwatts and milliwatts / 1000, number(row[theirs]), slack)
    check(f"{name} ecc", nvml["ecc"], switch(row["ecc.mode.current"]))
    for word in ("corrected", "uncorrected"):
        check(f"{name} ecc_{word}", pci["counters"].get(f"ecc_{word}"),
              number(row[f"ecc.errors.{word}.volatile.total"]))
    generation = number(row["pcie.link.gen.max"])
    rate = generation and [2.5, 5, 8, 16, 32, 64][int(generation) - 1]
    check(f"{name} pcie_max speed", nvml["pcie_max"]["gt_per_s"], rate)
    check(f"{name} pcie_max lanes", nvml["pcie_max"]["lanes"], number(row["pcie.link.width.max"]))
    check(f"{name} mig", nvml["mig"], switch(row["mig.mode.current"]))
    check(f"{name} mig_uuids", sorted(nvml["mig_uuids"]), sorted(instances.get(index, [])))
    up = sum("inactive" not in state for state in links.get(index, []))
    check(f"{name} nvlinks up", sum(link["active"] for link in nvml["nvlinks"]), up)
    for gap in pci["gaps"]:
        print(f"gap  {name} {gap['what']}: {gap['why']}")
for finding in health["findings"]:
    print(f"note {finding['text']}")
print(f"{failed} failed" if failed or not rows else "all passed")
sys.exit(1 if failed or not rows else 0)
PYTHON
