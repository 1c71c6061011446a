"""libtapas_rank as a Python rank sees it: through ctypes, without an agent."""

import ctypes
import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = os.environ["TAPAS_RANK_LIBRARY"]
ABI = 1
RECORD = struct.Struct("<HHI6Q2I16s8IQ2I")  # StepRecord of docs/protocol.md


class Options(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("job", ctypes.c_char_p),
        ("node", ctypes.c_char_p),
        ("session", ctypes.c_uint64),
        ("device", ctypes.c_uint8 * 16),
        ("dir", ctypes.c_char_p),
        ("ring_records", ctypes.c_uint32),
    ]


class Step(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("step", "end_time_ns", "bytes_moved")] + [
        (name, ctypes.c_uint32)
        for name in (
            "flags", "microbatches", "wall_us", "forward_us", "backward_us", "optimizer_us",
            "tp_collective_us", "pp_wait_us", "pp_transfer_us", "dp_collective_us", "work_tokens",
            "input_wait_us",
        )
    ]


class Command(ctypes.Structure):
    _fields_ = [
        ("order", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("from_epoch", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("at_step", ctypes.c_uint64),
    ]


@pytest.fixture
def library():
    lib = ctypes.CDLL(LIBRARY)
    lib.tapas_rank_open.argtypes = [ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p)]
    lib.tapas_rank_record.argtypes = [ctypes.c_void_p, ctypes.POINTER(Step)]
    lib.tapas_rank_poll.argtypes = [ctypes.c_void_p, ctypes.POINTER(Command)]
    lib.tapas_rank_dropped.argtypes = [ctypes.c_void_p]
    lib.tapas_rank_dropped.restype = ctypes.c_uint64
    lib.tapas_rank_epoch.argtypes = [ctypes.c_void_p]
    lib.tapas_rank_epoch.restype = ctypes.c_uint64
    lib.tapas_rank_close.argtypes = [ctypes.c_void_p]
    lib.tapas_rank_close.restype = None
    return lib


def options(folder, **changes):
    values = dict(
        abi=ABI, rank=3, job=b"gpt-tiny", node=b"node-1", session=7, dir=str(folder).encode(), ring_records=16
    )
    values.update(changes)
    return Options(**values)


def opened(library, folder, **changes):
    handle = ctypes.c_void_p()
    result = library.tapas_rank_open(ctypes.byref(options(folder, **changes)), ctypes.byref(handle))
    return result, handle


def record(library, handle, step):
    one = Step(
        step=step, end_time_ns=10**18, wall_us=1400, forward_us=400, backward_us=800, microbatches=8,
        work_tokens=4096, input_wait_us=50,
    )
    return library.tapas_rank_record(handle, ctypes.byref(one))


def records_in(folder):
    """The step records that lie in the segment, found by kind, version and rank."""
    (segment,) = [path for path in Path(folder).iterdir() if path.name.startswith("tapas-rank.")]
    data = segment.read_bytes()
    found = [RECORD.unpack_from(data, at) for at in range(0, len(data) - RECORD.size + 1, RECORD.size)]
    return [fields for fields in found if fields[0] == 1 and fields[1] == 1 and fields[9] == 3]


def test_records_lie_in_the_segment_as_documented(library, tmp_path):
    result, handle = opened(library, tmp_path)
    assert result == 0
    assert [record(library, handle, step) for step in (1, 2, 3)] == [1, 1, 1]
    records = records_in(tmp_path)
    assert [fields[7] for fields in records] == [1, 2, 3]
    first = records[0]
    assert first[4] == 7 and first[10] == 8, "session, microbatches"
    assert first[12:15] == (1400, 400, 800), "wall, forward, backward"
    assert first[-2:] == (4096, 50), "tokens, waiting for input"
    library.tapas_rank_close(handle)


def test_a_full_ring_drops_and_counts_and_never_blocks(library, tmp_path):
    _, handle = opened(library, tmp_path)
    taken = [record(library, handle, step) for step in range(1, 41)]
    assert taken == [1] * 16 + [0] * 24
    assert library.tapas_rank_dropped(handle) == 24
    library.tapas_rank_close(handle)


def test_without_an_agent_there_is_no_order_and_no_plan(library, tmp_path):
    _, handle = opened(library, tmp_path)
    assert library.tapas_rank_poll(handle, ctypes.byref(Command())) == 0
    assert library.tapas_rank_epoch(handle) == 0
    library.tapas_rank_close(handle)


def test_wrong_options_are_refused(library, tmp_path):
    assert opened(library, tmp_path, abi=99)[0] < 0
    assert opened(library, tmp_path, job=b"no/slash")[0] < 0
    assert opened(library, tmp_path, ring_records=3)[0] < 0
    assert opened(library, tmp_path / "absent")[0] == -errno.ENOENT


def test_two_processes_cannot_be_the_same_rank(library, tmp_path):
    _, handle = opened(library, tmp_path)
    code = (
        "import sys, ctypes; sys.path.insert(0, sys.argv[1]); import test_rank_library as t;"
        "library = ctypes.CDLL(t.LIBRARY); handle = ctypes.c_void_p();"
        "print(library.tapas_rank_open(ctypes.byref(t.options(sys.argv[2])), ctypes.byref(handle)))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=True,
    )
    assert int(other.stdout) == -errno.EBUSY
    library.tapas_rank_close(handle)
