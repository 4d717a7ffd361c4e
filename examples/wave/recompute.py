#!/usr/bin/env python3
"""Judges the films of the wave: computes the simulation again from its seed and compares it with every frame, bit by bit.

    python3 examples/wave/recompute.py out/wave/user.film [more films]

This is the physics of src/water.rs and the generator of base::Rng written a second time, in another language, with the
standard library alone; only the equations and the order of the additions are shared. Python's floats are IEEE 754
doubles and every operation rounds once, so a right film agrees to the last bit and "error 0" means exactly that.

Prints one line of JSON for each film: frames, values compared, values that differ, the largest and the root-mean-square
difference in millimetres, the root mean square of each frame, and that of the seams: by how much the steps between cells on
both sides of a border of two images differ from those of the wave itself. Ends with 0 whatever the errors are, with 1 if a film
cannot be read.
"""

import array
import json
import math
import sys

MASK = (1 << 64) - 1
CELLS = 100
IMAGE = 10
STEPS_PER_SAMPLE = 3
# Pairs of neighbouring cells that are in different images.
BORDERS = [(y * CELLS + x - 1, y * CELLS + x) for x in range(IMAGE, CELLS, IMAGE) for y in range(CELLS)]
BORDERS += [((y - 1) * CELLS + x, y * CELLS + x) for y in range(IMAGE, CELLS, IMAGE) for x in range(CELLS)]


class Generator:
    """xoshiro256++ (Blackman and Vigna), its state filled by splitmix64."""

    def __init__(self, seed):
        self.state = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & MASK
            z = seed
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            self.state.append(z ^ (z >> 31))

    def draw(self):
        a, b, c, d = self.state
        result = (rotated((a + d) & MASK, 23) + a) & MASK
        c ^= a
        d ^= b
        self.state = [a ^ d, b ^ c, c ^ ((b << 17) & MASK), rotated(d, 45)]
        return result

    def between(self, low, high):
        return low + ((self.draw() * (high - low + 1)) >> 64)


def rotated(word, by):
    return ((word << by) | (word >> (64 - by))) & MASK


def drops(seed):
    """Yields (sample, x, y, radius, tenths of a millimetre) for ever."""
    generator = Generator(seed)
    sample = 0
    first = True
    while True:
        gap = generator.between(24, 48)
        x = generator.between(15, 84)
        y = generator.between(15, 84)
        radius = generator.between(8, 12)
        tenths = generator.between(40, 80)
        sample = 0 if first else sample + gap
        first = False
        yield sample, x, y, radius, tenths


def fall(height, drop):
    _, at_x, at_y, radius, tenths = drop
    top = tenths / 10000.0
    squared = float(radius * radius)
    for y in range(max(0, at_y - radius), min(CELLS, at_y + radius + 1)):
        row = height[y]
        for x in range(max(0, at_x - radius), min(CELLS, at_x + radius + 1)):
            near = 1.0 - float((x - at_x) ** 2 + (y - at_y) ** 2) / squared
            if near > 0.0:
                row[x] = row[x] + top * near * near * near


def samples(seed):
    """Yields the rows of heights at sample 0, 1, 2 and so on."""
    pull = 9.81 / (60.0 * 0.02)
    flow = 1.0 / (60.0 * 0.02)
    depth, kept = 0.025, 0.995
    height = [[0.0] * CELLS for _ in range(CELLS)]
    # Faces inside the tank only: a wall has velocity 0 and lets nothing through.
    across = [[0.0] * (CELLS - 1) for _ in range(CELLS)]
    along = [[0.0] * CELLS for _ in range(CELLS - 1)]
    wall = [0.0] * CELLS
    falling = drops(seed)
    coming = next(falling)
    number = 0
    while True:
        while coming[0] <= number:
            fall(height, coming)
            coming = next(falling)
        yield height
        for _ in range(STEPS_PER_SAMPLE):
            across = [
                [(speed - pull * (right - left)) * kept for speed, left, right in zip(speeds, row, row[1:])]
                for speeds, row in zip(across, height)
            ]
            along = [
                [(speed - pull * (below - above)) * kept for speed, above, below in zip(speeds, upper, lower)]
                for speeds, upper, lower in zip(along, height, height[1:])
            ]
            through_across = [
                [speed * (depth + 0.5 * (left + right)) for speed, left, right in zip(speeds, row, row[1:])]
                for speeds, row in zip(across, height)
            ]
            through_along = [wall]
            for speeds, upper, lower in zip(along, height, height[1:]):
                through_along.append(
                    [speed * (depth + 0.5 * (above + below)) for speed, above, below in zip(speeds, upper, lower)]
                )
            through_along.append(wall)
            height = [
                [
                    old - flow * ((right - left) + (below - above))
                    for old, left, right, above, below in zip(row, [0.0] + sides, sides + [0.0], upper, lower)
                ]
                for row, sides, upper, lower in zip(height, through_across, through_along, through_along[1:])
            ]
        number += 1


class Film:
    """A film file: one line of JSON, then for each frame CELLS * CELLS little-endian doubles."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.about = json.loads(file.readline())
            self.values = array.array("d")
            self.values.frombytes(file.read())
        if sys.byteorder == "big":
            self.values.byteswap()
        wanted = self.about["frames"] * CELLS * CELLS
        if self.about["cells"] != CELLS or len(self.values) != wanted:
            raise ValueError(f"{path}: {len(self.values)} values, {wanted} expected")
        self.frames_rms = []
        self.frames_seams = []
        self.differing = 0
        self.largest = 0.0

    def sample_of(self, frame):
        return self.about["first_sample"] + frame * self.about["samples_per_frame"]

    def compare(self, frame, truth):
        seen = self.values[frame * CELLS * CELLS : (frame + 1) * CELLS * CELLS]
        squares, seams = 0.0, 0.0
        if seen.tobytes() != truth.tobytes():
            steps = ((seen[b] - seen[a]) - (truth[b] - truth[a]) for a, b in BORDERS)
            seams = sum(step * step for step in steps)
            for found, right in zip(seen, truth):
                difference = abs(found - right)
                # A value that is no number differs, and must not hide in a comparison that is always false.
                if found != right or math.copysign(1.0, found) != math.copysign(1.0, right):
                    self.differing += 1
                if not difference <= self.largest:
                    self.largest = difference
                squares += difference * difference
        self.frames_rms.append(math.sqrt(squares / (CELLS * CELLS)))
        self.frames_seams.append(math.sqrt(seams / len(BORDERS)))

    def verdict(self):
        def rms(frames):
            return math.sqrt(sum(value * value for value in frames) / len(frames)) * 1000.0

        return {
            "film": self.about["film"],
            "frames": self.about["frames"],
            "values": len(self.values),
            "values_differing": self.differing,
            "error_max_mm": self.largest * 1000.0,
            "error_rms_mm": rms(self.frames_rms),
            "seams_rms_mm": rms(self.frames_seams),
            "frames_rms_mm": [value * 1000.0 for value in self.frames_rms],
            "frames_seams_mm": [value * 1000.0 for value in self.frames_seams],
        }


def main(paths):
    films = [Film(path) for path in paths]
    for seed in sorted({film.about["seed"] for film in films}):
        # The frame of each sample, for every film of this seed.
        wanted = {}
        for film in films:
            if film.about["seed"] == seed:
                for frame in range(film.about["frames"]):
                    wanted.setdefault(film.sample_of(frame), []).append((film, frame))
        for number, rows in enumerate(samples(seed)):
            for film, frame in wanted.pop(number, ()):
                film.compare(frame, array.array("d", [height for row in rows for height in row]))
            if not wanted:
                break
    for film in films:
        print(json.dumps(film.verdict()))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1:])
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"recompute.py: {error}")
