"""Stage `time`: calls a second, and how long calls take."""

import ibis

from . import SECOND_NS, floor_to, is_read, is_write

# Buckets of durations are a sixteenth of a power of two wide: quantiles are right within 4.4 %.
BUCKETS_PER_OCTAVE = 16
LN_2 = 0.6931471805599453


def seconds(events):
    """Calls and bytes of each second that has any, reads, writes and the rest apart."""
    wide = events.select(
        "calls",
        "bytes",
        second=floor_to(events.t, SECOND_NS),
        what=ibis.cases((is_read(events), "read"), (is_write(events), "write"), else_="other"),
    )
    return wide.group_by("second", "what").agg(
        calls=wide.calls.sum().cast("int64"), bytes=wide.bytes.sum().cast("int64")
    )


def durations(events):
    """Events by call, gateway and bucket of their duration: bucket b holds durations from 2^(b/16) to 2^((b+1)/16) ns.

    An event that stands for several calls counts once: how long each of them took is not known.
    """
    kept = events.filter(events.dur.notnull())
    # The small addend keeps exact powers of two in their bucket, whatever the last digit of an engine's logarithm.
    scaled = (ibis.greatest(kept.dur, 1).cast("float64").ln() / LN_2 * BUCKETS_PER_OCTAVE + 1e-9).floor()
    kept = kept.select("call", "gateway", "dur", bucket=scaled.cast("int32"))
    return kept.group_by("call", "gateway", "bucket").agg(
        events=kept.count(), dur_ns=kept.dur.sum().cast("int64"), max_ns=kept.dur.max()
    )
