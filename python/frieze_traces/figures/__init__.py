"""The figures: each module takes the tables of the stages and makes numbers, words and a picture of them.

Numbers are made first, in `rows`; words and pictures show nothing that is not in them.
"""

import dataclasses

import numpy

# Sizes of files: below 16 MB, 16 to 64 MB, above (binary units, as in the paper's section 4.3).
SMALL, MEDIUM = 16 << 20, 64 << 20


@dataclasses.dataclass
class Figure:
    """One figure of a report."""

    name: str
    title: str
    # Number of the figure in "Analysis of HDFS Under HBase", or "".
    paper: str
    # Sentences computed from the rows.
    words: list
    # Lists of dictionaries by the name of their table; the first is shown in full.
    rows: dict
    # A Vega-Lite chart of Altair, or None if there is nothing to show.
    chart: object = None
    # What this figure lacks in this trace, and why.
    missing: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Tables:
    """The results of the stages that figures are made of, as columns of numbers."""

    facts: dict
    manifests: list
    io: dict
    files: dict
    data: dict
    nearby: dict
    seconds: dict
    durations: dict
    streams: dict
    labels: dict
    calls: dict
    gateways: dict
    replicas: int
    stored: int | None

    @property
    def spans(self):
        """Spans in which events were lost, ns since 1970, merged, in order."""
        merged = []
        for start, end in sorted(
            (span["from_ns"], span["to_ns"]) for manifest in self.manifests for span in manifest["lost"]["spans"]
        ):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(end, merged[-1][1])
            else:
                merged.append([start, end])
        return merged

    @property
    def span_ns(self):
        """From the first start to the last, ns."""
        return self.facts["last_ns"] - self.facts["first_ns"]


def columns(table):
    """The columns of an Arrow table as arrays: whole numbers stay whole, nulls in them become the smallest."""
    out = {}
    for name in table.column_names:
        column = table.column(name)
        if column.null_count and str(column.type) in ("int32", "int64"):
            column = column.fill_null(int(numpy.iinfo(str(column.type)).min))
        out[name] = column.to_numpy() if str(column.type) != "string" else numpy.array(column.to_pylist(), dtype=object)
    return out


NONE = int(numpy.iinfo("int64").min)


def share(part, whole):
    """Their quotient; 0 of nothing is 0."""
    return part / whole if whole else 0.0


def percent(value):
    """A share as people write it."""
    value *= 100
    if 99.5 <= value < 100:
        return f"{min(value, 99.9):.1f} %"
    if value == 0 or value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.1 else "below 0.1 %"


def size(value):
    """Bytes in decimal units."""
    for unit in ["B", "KB", "MB", "GB", "TB", "PB"]:
        if abs(value) < 999.5 or unit == "PB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.3g} {unit}"
        value /= 1000
    return ""


def duration(ns):
    """A span of time in the unit that suits it."""
    for unit, factor, below in [
        ("ns", 1, 1e3),
        ("us", 1e3, 1e6),
        ("ms", 1e6, 1e9),
        ("s", 1e9, 120e9),
        ("min", 60e9, 7200e9),
        ("h", 3600e9, 48 * 3600e9),
    ]:
        if abs(ns) < below:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns / 86400e9:.3g} days"


def grouped(count):
    """A whole number with separators."""
    return f"{count:,}"


def rounded(value):
    """A number with three digits, a large one whole."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def kind_label(kind, family):
    """How a type of file is called: a column family by its name, everything else by its kind."""
    return family if kind == "hfile" and family else kind
