#!/usr/bin/env python3
"""Hit ratios of LRU, FIFO, CLOCK, SIEVE and S3-FIFO beside those of libCacheSim 0.3.5 on the same requests.

libCacheSim is GPL-3: it runs in a virtual environment of its own and is never linked. LRU, FIFO, CLOCK and SIEVE have
to be equal to the last hit. S3-FIFO is defined a little differently there; the difference is printed and bounded.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
SIZES = [10, 100, 1000, 4000]
# S3-FIFO: the other makes room before an object comes in, and its ghosts are nine tenths of the room.
DIFFERENCE_MAX = {"lru": 0.0, "fifo": 0.0, "clock": 0.0, "sieve": 0.0, "s3-fifo": 0.02}
# In ten pages its small queue has one, which leaves as the next comes in: it has no hits at all. While it fills, it puts
# what its small queue has no room for into the main queue, where a loop finds it again for ever.
S3_SIZE_MIN = 100
S3_TRACES = ("power law", "with scans")


def venv() -> pathlib.Path:
    """The Python of the environment, made at the first run."""
    where = pathlib.Path(tempfile.gettempdir()) / "frieze-libcachesim-0.3.5"
    python = where / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", where], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "libcachesim==0.3.5"], check=True)
    return python


def traces() -> dict[str, list[int]]:
    """Requests: a power law, the same with scans, and a loop."""
    rng = random.Random(1)
    zipf = [int(20000 * rng.random() ** 3) for _ in range(200_000)]
    scans = []
    for number, key in enumerate(zipf):
        scans.append(key)
        if number % 20_000 == 0:
            scans.extend(range(1_000_000 + number, 1_000_000 + number + 5000))
    loop = [number % 3000 for number in range(60_000)]
    return {"power law": zipf, "with scans": scans, "loop": loop}


def theirs(keys: list[int]) -> dict[tuple[str, int], int]:
    """Hits by policy and size."""
    import libcachesim as lcs

    makers = {"lru": lcs.LRU, "fifo": lcs.FIFO, "clock": lcs.Clock, "sieve": lcs.Sieve, "s3-fifo": lcs.S3FIFO}
    hits = {}
    for name, make in makers.items():
        for size in SIZES:
            cache = make(cache_size=size)
            count = 0
            for time, key in enumerate(keys):
                request = lcs.Request()
                request.obj_id, request.obj_size, request.clock_time = key + 1, 1, time
                count += bool(cache.get(request))
            hits[name, size] = count
    return hits


def ours(example: pathlib.Path, keys: list[int]) -> dict[tuple[str, int], int]:
    """The same by our policies."""
    text = "\n".join(map(str, keys))
    done = subprocess.run([example, *map(str, SIZES)], input=text, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {(policy, int(size)): int(count) for policy, size, _, count in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", type=pathlib.Path, help="the built example `hits` [default: cargo builds it]")
    args = parser.parse_args()
    if args.example is None:
        build = ["cargo", "build", "--package", "frieze-whatif", "--example", "hits", "--message-format=short"]
        subprocess.run(build, cwd=ROOT, check=True)
        args.example = ROOT / "target" / "debug" / "examples" / "hits"
    try:
        import libcachesim  # noqa: F401
    except ImportError:
        return subprocess.run([venv(), __file__, "--example", args.example], check=False).returncode
    failed = 0
    print(f"{'trace':12} {'policy':8} {'size':>6} {'ours':>8} {'theirs':>8} {'difference':>10}")
    for name, keys in traces().items():
        mine, other = ours(args.example, keys), theirs(keys)
        for (policy, size), count in mine.items():
            left, right = count / len(keys), other[policy, size] / len(keys)
            is_comparable = policy != "s3-fifo" or (size >= S3_SIZE_MIN and name in S3_TRACES)
            is_wrong = is_comparable and abs(left - right) > DIFFERENCE_MAX[policy]
            failed += is_wrong
            mark = "  <-- too far" if is_wrong else ""
            print(f"{name:12} {policy:8} {size:6} {left:8.4f} {right:8.4f} {left - right:+10.5f}{mark}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
