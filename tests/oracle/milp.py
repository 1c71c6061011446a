#!/usr/bin/env python3
"""Holds the search's document objective against a mixed-integer program.

Runs the program given as the argument, which prints cases, and solves each with HiGHS (scipy). The
program chooses the stage and width of every layer and which layers recompute; nothing is taken from
the search but the costs of single layers. Exit 77 when scipy is not installed."""

import json
import subprocess
import sys

try:
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix
except ImportError:
    print("skipped: scipy with HiGHS is not installed")
    sys.exit(77)

# The MILP is solved to this relative gap, so the two may differ by as much.
GAP = 1e-7


class Model:
    """Columns and rows of a MILP, by name."""

    def __init__(self):
        self.columns = {}
        self.cost, self.low, self.high, self.integer = [], [], [], []
        self.rows, self.row_low, self.row_high = [], [], []

    def var(self, name, low=0.0, high=np.inf, integer=False, cost=0.0):
        self.columns[name] = len(self.cost)
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.integer.append(integer)

    def add(self, terms, low=-np.inf, high=np.inf):
        self.rows.append([(self.columns[name], factor) for name, factor in terms])
        self.row_low.append(low)
        self.row_high.append(high)

    def solve(self):
        data, column, start = [], [], [0]
        for row in self.rows:
            for c, factor in row:
                column.append(c)
                data.append(factor)
            start.append(len(data))
        matrix = csr_matrix((data, column, start), shape=(len(self.rows), len(self.cost)))
        result = milp(
            self.cost,
            constraints=LinearConstraint(matrix, self.row_low, self.row_high),
            bounds=Bounds(self.low, self.high),
            integrality=np.array(self.integer, dtype=int),
            options={"mip_rel_gap": GAP},
        )
        if result.status not in (0, 2):
            raise RuntimeError(f"HiGHS: {result.message}")
        return result.fun if result.status == 0 else None


def solve(case, problem):
    """Least objective of one replica count; None when nothing fits."""
    stages = range(case["stages"])
    kinds = range(len(problem["kinds"]))
    cost = [kind["layers"] for kind in problem["kinds"]]
    layers = range(len(cost[0]))
    unit_s = max(l["forward"] + l["backward"] for l in cost[0])  # keeps numbers near one
    unit_b = problem["capacity"]
    state = problem["state_bytes_per_param"]
    w_comm = case["communication_per_s"] * unit_s
    w_time = case["stage_time_per_s"] * unit_s

    m = Model()
    m.var("longest", cost=w_time)
    m.var("sending", cost=w_comm + w_time)  # of one microbatch, in every stage
    for s in stages:
        for part in ("scratch", "gradient", "again"):  # each the largest of the stage's layers
            m.var((part, s))
        for k in kinds:
            m.var(("kind", s, k), high=1, integer=True)
            for l in layers:
                on = ("on", l, s, k)
                m.var(on, high=1, integer=True, cost=w_comm * cost[k][l]["tp_comm"] / unit_s)
                m.var(("recompute", l, s, k), high=1, integer=True)
    for l in layers:
        m.add([(("on", l, s, k), 1) for s in stages for k in kinds], 1, 1)
    for s in stages:
        m.add([(("kind", s, k), 1) for k in kinds], 1, 1)
        m.add([(("on", l, s, k), 1) for l in layers for k in kinds], 1)
        for k in kinds:
            for l in layers:
                m.add([(("on", l, s, k), 1), (("kind", s, k), -1)], high=0)
                m.add([(("recompute", l, s, k), 1), (("on", l, s, k), -1)], high=0)
    # The stage of a layer is that of the layer before or the next one.
    for l in layers[:-1]:
        step = [(("on", l + 1, s, k), s) for s in stages for k in kinds]
        step += [(("on", l, s, k), -s) for s in stages for k in kinds]
        m.add(step, 0, 1)
        # A cut before layer l + 1 sends what crosses it.
        m.add(
            [("sending", 1)] + [(name, -f * problem["pp_comm"][l + 1] / unit_s) for name, f in step],
            0,
        )
    m.add(
        [(("kind", s, k), problem["kinds"][k]["width"]) for s in stages for k in kinds],
        high=problem["devices"],
    )
    for s in stages:
        held = problem["held"][s]
        time, memory, ratio = [("longest", 1)], [], []
        memory += [((part, s), 1) for part in ("scratch", "gradient", "again")]
        for k in kinds:
            for l in layers:
                c = cost[k][l]
                on, again = ("on", l, s, k), ("recompute", l, s, k)
                saved = c["stash"] - c["input"]
                time += [(on, -(c["forward"] + c["backward"]) / unit_s), (again, -c["forward"] / unit_s)]
                memory += [
                    (on, (c["params"] * state + held * c["stash"]) / unit_b),
                    (again, -held * saved / unit_b),
                ]
                ratio += [
                    (on, -problem["recompute_ratio"] * c["flops"] / 1e12),
                    (again, c["forward_flops"] / 1e12),
                ]
                m.add([(("scratch", s), 1), (on, -c["scratch"] / unit_b)], 0)
                m.add([(("gradient", s), 1), (on, -c["gradient"] / unit_b)], 0)
                m.add([(("again", s), 1), (again, -saved / unit_b)], 0)
        m.add(time, 0)
        m.add(memory, high=1)
        m.add(ratio, high=0)
    return m.solve()


def main():
    cases = json.loads(subprocess.run(sys.argv[1:], check=True, capture_output=True).stdout)
    failed = 0
    for case in cases:
        values = [solve(case, problem) for problem in case["problems"]]
        feasible = [value for value in values if value is not None]
        want = min(feasible) if feasible else None
        got = case["objective"]
        if want is None or got is None:
            same = want is None and got is None
        else:
            same = abs(got - want) <= 10 * GAP * want and case["optimal"]
        failed += not same
        print(f"case {case['seed']}: search {got}, MILP {want}: {'equal' if same else 'DIFFERENT'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
