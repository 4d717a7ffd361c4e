"""Stage `nearby`: how long before a read a nearby read was, for figure 7, the locality map.

Two reads of a file are within a distance if the gap between their bytes is at most that; for distance 0 they share a
byte. Ranges widened by half of the distance on both sides meet just then, so both lie in one of the frames that these
cover. Within a frame, in order of time, the latest of the `LOOKBACK` reads before that is near enough is the answer.
If none of them is, and the earliest of them is younger than the last threshold, the read is undecided: it counts as
random, and the report says how many there are.

Beyond `reads_max` reads a sample of regions of 64 MiB is taken, by a hash of file and region: their reads are counted,
those up to 4 MiB around them are only looked at.
"""

import ibis

from . import MINUTE_NS, is_read, total

SECOND_NS = MINUTE_NS // 60
DISTANCES = {0: 1 << 16, 1 << 10: 1 << 16, 1 << 16: 1 << 17, 1 << 20: 1 << 21}
THRESHOLDS_NS = [SECOND_NS * s for s in (1, 4, 15)] + [MINUTE_NS * m for m in (1, 2, 4, 8, 16, 32, 64)]
LOOKBACK = 6
REGION_BITS, AROUND = 26, 4 << 20
# Of a longer read so many bytes are looked at: frames are bounded.
LENGTH_MAX = 16 << 20
HASHES = 4096
PRIME = 1_000_003


def reads(events):
    """The reads that have a place, equal ones at one instant once, with their number."""
    kept = events.filter(is_read(events) & (events.bytes > 0) & events["offset"].notnull() & events.file.notnull())
    kept = kept.select("file", "t", start=kept["offset"], end=kept["offset"] + ibis.least(kept.bytes, LENGTH_MAX))
    return kept.group_by("file", "t", "start", "end").agg(reads=kept.count())


def _chosen(file, offset, share):
    # Each factor stays below 2^20, so no product leaves 64 bits on any engine.
    region = (offset >> REGION_BITS) % PRIME
    mixed = ((file % PRIME).abs() * 7919 + region * 104_729) % PRIME
    return (mixed * mixed * 31 + mixed * 17) % PRIME % HASHES < share


def sample(reads, share):
    """Reads in `share` of 4,096 of the regions (`counted`), and those around them."""
    if share >= HASHES:
        return reads.mutate(counted=ibis.literal(1))
    before = ibis.greatest(reads.start - AROUND, 0)
    inside = _chosen(reads.file, reads.start, share)
    near = inside | _chosen(reads.file, before, share) | _chosen(reads.file, reads.start + AROUND, share)
    return reads.mutate(counted=inside.cast("int32")).filter(near)


def waits(reads):
    """For each distance, how many reads follow a near one within each threshold, and how many more are undecided.

    `slot` is the number of thresholds that are too short: all of them if no near read is found.
    """
    tables = [_waits(reads, distance, frame) for distance, frame in DISTANCES.items()]
    return ibis.union(*tables)


def _waits(reads, distance, frame):
    bits = frame.bit_length() - 1
    half = distance // 2
    low = ibis.greatest(reads.start - half, 0) >> bits
    high = (reads.end + half - (0 if distance else 1)) >> bits
    framed = reads.mutate(frame=ibis.range(low, high + 1).unnest())
    window = ibis.window(group_by=["file", "frame"], order_by=["t", "start", "end"])
    before = {}
    for back in range(1, LOOKBACK + 1):
        for name in ["t", "start", "end"]:
            before[f"{name}_{back}"] = framed[name].lag(back).over(window)
    wide = framed.mutate(**before)
    found = []
    for back in range(1, LOOKBACK + 1):
        gap = ibis.greatest(wide.start, wide[f"start_{back}"]) - ibis.least(wide.end, wide[f"end_{back}"])
        found.append((gap <= distance if distance else gap < 0, wide[f"t_{back}"]))
    # A read at the same instant counts as before.
    latest = ibis.cases(*found, else_=None)
    oldest = wide[f"t_{LOOKBACK}"]
    open_end = latest.isnull() & oldest.notnull() & (wide.t - oldest < THRESHOLDS_NS[-1])
    wide = wide.mutate(latest=latest, open_end=open_end.cast("int32"))
    one = wide.filter(wide.counted == 1).group_by("file", "t", "start", "end", "reads")
    read = one.agg(latest=wide.latest.max(), open_end=wide.open_end.max())
    wait = read.t - read.latest
    slot = ibis.cases(
        *((wait <= limit, number) for number, limit in enumerate(THRESHOLDS_NS)), else_=len(THRESHOLDS_NS)
    )
    # Of equal reads at one instant all but the first follow one at once.
    read = read.mutate(slot=slot.cast("int32"))
    repeated = read.filter(read.reads > 1)
    slots = read.select("slot", "open_end", reads=ibis.literal(1, "int64")).union(
        repeated.select(
            slot=ibis.literal(0, "int32"), open_end=ibis.literal(0, "int32"), reads=repeated.reads - 1
        ).select("slot", "open_end", "reads")
    )
    return (
        slots.group_by("slot")
        .agg(reads=slots.reads.sum().cast("int64"), undecided=total(slots.open_end == 1, slots.reads))
        .mutate(distance=ibis.literal(distance, "int64"))
        .select("distance", "slot", "reads", "undecided")
    )
