#!/usr/bin/env python3
"""Draws docs/growth.svg: how the time of the search grows.

    build/bin/tapas-bench --json --only offline.growth. | tests/bench/plot_growth.py > docs/growth.svg

Both axes are logarithmic; one panel each for layers, stages and devices.
"""

import json
import math
import sys

PANELS = ("layers", "stages", "devices")
WIDTH, HEIGHT, LEFT, TOP, GAP = 260, 190, 58, 34, 62
LEAST, MOST = 1e-3, 10.0


def series(benchmarks, name):
    prefix = f"offline.growth.{name}_"
    found = [b for b in benchmarks if b["name"].startswith(prefix)]
    points = [(int(b["name"][len(prefix):]), b["value"]) for b in found]
    if len(points) < 2:
        sys.exit(f"plot_growth.py: fewer than two rows {prefix}* in the input: run tapas-bench --json")
    return sorted(points)


def height_of(seconds):
    share = math.log10(max(seconds, LEAST) / LEAST) / math.log10(MOST / LEAST)
    return TOP + HEIGHT * (1 - min(share, 1))


def panel(points, name, left):
    low, high = math.log(points[0][0]), math.log(points[-1][0])
    place = [(left + WIDTH * (math.log(x) - low) / (high - low), height_of(y)) for x, y in points]
    bottom = TOP + HEIGHT
    out = [f'<text class="title" x="{left}" y="{TOP - 14}">{name}</text>']
    decade = LEAST
    while decade <= MOST * 1.001:
        y = height_of(decade)
        out.append(f'<line class="grid" x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="axis" text-anchor="end" x="{left - 6}" y="{y + 4:.1f}">{decade:g} s</text>')
        decade *= 10
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in place)
    out.append(f'<polyline class="line" points="{path}"/>')
    for (x, y), (count, seconds) in zip(place, points):
        out.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{count} {name}: {seconds:.3g} s</title></circle>')
        out.append(f'<text class="axis" text-anchor="middle" x="{x:.1f}" y="{bottom + 18}">{count}</text>')
    return "\n".join(out)


def main():
    benchmarks = json.load(sys.stdin)["benchmarks"]
    width = LEFT + len(PANELS) * (WIDTH + GAP)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 34}" '
          'font-family="system-ui, sans-serif" font-size="11">')
    print("<title>Time of the search by layers, stages and devices</title>")
    print("<style>text{fill:#1f2328}.axis{fill:#59636e}.title{font-size:13px;font-weight:600}"
          ".grid{stroke:#d1d9e0}.line{fill:none;stroke:#3b82c4;stroke-width:2}.dot{fill:#3b82c4}"
          "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{fill:#9198a1}.grid{stroke:#3d444d}}</style>")
    for k, name in enumerate(PANELS):
        print(panel(series(benchmarks, name), name, LEFT + k * (WIDTH + GAP)))
    print("</svg>")


if __name__ == "__main__":
    main()
