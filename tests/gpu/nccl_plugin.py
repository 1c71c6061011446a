"""The job of nccl_plugin.sh, and what is expected of the records that the plugin made of it.

    nccl_plugin.py train FILE           one rank; rank 0 writes the mean step time in seconds
    nccl_plugin.py check FOLDER FILE    the rings in FOLDER against the step time in FILE
    nccl_plugin.py compare OFF SOME EACH
"""

import glob
import os
import statistics
import struct
import sys
import time

STEPS = 900  # a ring holds 1,024 records
SLOW_RANK = 1
SLOWDOWN = 1.5
# agent/rank/segment.h and docs/protocol.md.
HEAD_OFFSET, RING_OFFSET, RING_RECORDS_OFFSET, RANK_OFFSET, RECORD_BYTES = 640, 1152, 20, 48, 128
STEP_KIND = 1


def train(step_file):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    buckets = [torch.zeros(4 << 20, device="cuda") for _ in range(3)]
    buckets.append(torch.zeros(8 << 20, device="cuda"))
    multiplications = round(40 * (SLOWDOWN if rank == SLOW_RANK else 1))
    begin = None
    for step in range(STEPS):
        if step == STEPS // 3:
            begin = time.perf_counter()
        for bucket in buckets:
            for _ in range(multiplications):
                torch.mm(a, a)
            dist.all_reduce(bucket)
        torch.cuda.synchronize()
    if rank == 0:
        with open(step_file, "w", encoding="ascii") as out:
            out.write(str((time.perf_counter() - begin) / (STEPS - STEPS // 3)))
    dist.destroy_process_group()


def read_ring(path):
    """(rank, [(step, wall, forward, collective)]): what no agent has read stays in the file."""
    with open(path, "rb") as ring:
        data = ring.read()
    (records,) = struct.unpack_from("<I", data, RING_RECORDS_OFFSET)
    (rank,) = struct.unpack_from("<I", data, RANK_OFFSET)
    (head,) = struct.unpack_from("<Q", data, HEAD_OFFSET)
    steps = []
    for i in range(min(head, records)):
        at = RING_OFFSET + i * RECORD_BYTES
        if struct.unpack_from("<H", data, at)[0] != STEP_KIND:
            continue
        (step,) = struct.unpack_from("<Q", data, at + 40)
        wall, forward = struct.unpack_from("<II", data, at + 80)
        (collective,) = struct.unpack_from("<I", data, at + 108)
        steps.append((step, wall * 1e-6, forward * 1e-6, collective * 1e-6))
    return rank, steps


def seconds(path):
    with open(path, encoding="ascii") as text:
        return float(text.read())


def verdict(name, good, seen):
    print(f"{'ok     ' if good else 'FAILED '} {name}: {seen}")
    return good


def check(folder, step_file):
    rings = dict(read_ring(path) for path in glob.glob(f"{folder}/tapas-nccl.*"))
    many = bool(rings) and all(len(steps) > 100 for steps in rings.values())
    if not verdict("every rank has records", many, {r: len(s) for r, s in rings.items()}):
        return False
    numbers = {rank: [step for step, *_ in steps] for rank, steps in rings.items()}
    good = verdict("steps ascend", all(n == sorted(set(n)) for n in numbers.values()), "all ranks")
    common = set.intersection(*map(set, numbers.values()))
    good &= verdict("ranks number steps alike", len(common) > 100, f"{len(common)} in common")

    def median(rank, field):
        return statistics.median(step[field] for step in rings[rank])

    walls = [median(rank, 1) for rank in rings]
    true_s = seconds(step_file)
    good &= verdict("a step takes what the script measures, within 10 %",
                    all(abs(wall / true_s - 1) < 0.1 for wall in walls),
                    f"{walls} s, script {true_s:.6f} s")
    usual = statistics.median(median(rank, 2) for rank in rings if rank != SLOW_RANK)
    slow = median(SLOW_RANK, 2)
    good &= verdict(f"rank {SLOW_RANK} computes {SLOWDOWN} times as long, within 0.2",
                    abs(slow / usual - SLOWDOWN) < 0.2, f"{slow / usual:.2f}")
    waits = {rank: median(rank, 3) for rank in rings}
    good &= verdict(f"rank {SLOW_RANK} waits least", min(waits, key=waits.get) == SLOW_RANK, waits)
    return good


def compare(off, some, each):
    off_s, some_s, each_s = seconds(off), seconds(some), seconds(each)
    good = verdict("one step of eight measured costs less than 1 %", some_s < 1.01 * off_s,
                   f"{100 * (some_s / off_s - 1):+.2f} %")
    good &= verdict("each step measured costs less than 5 %", each_s < 1.05 * off_s,
                    f"{100 * (each_s / off_s - 1):+.2f} %")
    return good


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["help"]
    commands = {"train": train, "check": check, "compare": compare}
    if command not in commands:
        sys.exit(__doc__)
    sys.exit(0 if commands[command](*arguments) in (None, True) else 1)
