#!/usr/bin/env python3
"""Figure 1 of the Freeze-Frame File System paper beside HDFS itself: the wave from HDFS's snapshots, by system time, by user time.

    examples/wave/beside_hdfs.py                with the release build; builds it first; the picture is out/wave/beside-hdfs.png
    examples/wave/beside_hdfs.py --json         one JSON document

The same cameras (Cameras.java, by Hadoop's client) stream the same wave with the same delays into HDFS 3.4.1, where a snapshot is taken
every 100 ms, and into frieze, where nothing is. Into HDFS twice: with each record flushed (hflush), and with each on the disk and its length
told to the name node (hsync, UPDATE_LENGTH), and snapshots that capture open files: without that a snapshot has what an open file holds
when it is closed. Into frieze as the second time.
An image is of another instant than its frame's if it cannot have been the newest then: it can from when it was sent until the
next one was acknowledged, so that doubt counts for the file system. A frame is torn if there was no instant at all at which all its images can
have been. Ends with 1 if an image of frieze's by system time is of another instant, or a frame by user time is not the wave to the last
bit. Needs a JDK and Maven; numpy and matplotlib come from PyPI at the first run.
"""

import argparse
import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import hadoop
import recompute

CAMERAS, CELLS, FRAMES, SAMPLES, FIRST_SAMPLE = 100, 100, 100, 220, 10
SAMPLE_US, FRAME_US, DELAY_US_MAX = 50_000, 100_000, 120_000
# The frame that is shown, as in the paper.
SHOWN = 37
# Where in a record its time is.
TIME_PLUGIN = "binary:offset=0,width=8,order=little,signed=false,size=any,epoch=unix,unit=us"
TITLES = {
    "hflush": "HDFS snapshots, hflush",
    "lengths": "HDFS snapshots, hsync",
    "system": "frieze, by system time",
    "user": "frieze, by user time",
}


def written(path, values):
    if sys.byteorder == "big":
        values.byteswap()
    path.write_bytes(values.tobytes())
    return path


def prepare(work, seed):
    """The wave, and when each image of each camera arrives: late by a time of its own, in order."""
    wave = recompute.samples(seed)
    heights = array.array("d", (height for _ in range(SAMPLES) for row in next(wave) for height in row))
    arrivals = array.array("q")
    for camera in range(CAMERAS):
        generator, last = recompute.Generator(seed ^ (camera + 1) << 32), 0
        for sample in range(SAMPLES):
            last = max(last, sample * SAMPLE_US + generator.between(0, DELAY_US_MAX - 1))
            arrivals.append(last)
    return written(work / "samples", heights), written(work / "arrivals", arrivals)


class Film:
    """A film for recompute.py, when each of its images was taken, and when it can have been the newest (if the film is of system time)."""

    def __init__(self, path, taken, begins_us, log=None):
        self.path, self.taken, self.begins_us = path, taken, begins_us
        frames = spans(taken, log, begins_us) if log else []
        self.torn = sum(map(is_torn, frames))
        self.elsewhere = elsewhere(frames, begins_us) if log else [[]] * FRAMES

    def behind_ms(self):
        """How long before the instants of the frames their images were taken, on average."""
        begins_us = self.begins_us + FIRST_SAMPLE * SAMPLE_US
        late = [begins_us + index // CAMERAS * FRAME_US - us for index, us in enumerate(self.taken) if us]
        return sum(late) / len(late) / 1000 if late else 0

    def spreads_ms(self):
        """Of each frame, how far its images are apart in the wave's time; and how many are missing."""
        frames = (self.taken[frame * CAMERAS : (frame + 1) * CAMERAS] for frame in range(FRAMES))
        seen = [[us for us in frame if us] for frame in frames]
        return [(max(frame) - min(frame)) / 1000 if frame else 0 for frame in seen], FRAMES * CAMERAS - sum(map(len, seen))


class Program:
    """Cameras.java with the jars of Hadoop's."""

    def __init__(self, work, classpath):
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", work / "classes", HERE / "Cameras.java"], check=True)
        hadoop.site(work / "conf", dfs_replication=1)
        self.work = work
        self.java = ["java", "-Xmx512m", "-cp", f"{work / 'classes'}:{work / 'conf'}:{classpath}", "Cameras"]

    def run(self, *words):
        with open(self.work / "cameras.log", "ab") as log:
            done = subprocess.run([*self.java, *map(str, words)], stdout=subprocess.PIPE, stderr=log, text=True, timeout=120)
        if done.returncode != 0:
            sys.exit(f"the cameras ended with {done.returncode}:\n{(self.work / 'cameras.log').read_text()[-3000:]}")
        return done.stdout

    def stream(self, url, prepared, log, *how):
        return json.loads(self.run("stream", url, "/wave", *prepared, log, *how).splitlines()[-1])

    def film(self, url, name, folders, seed):
        """Reads a film: in the format of recompute.py, and when each image was taken."""
        (self.work / "folders").write_text("\n".join(folders))
        body, taken = self.work / "body", self.work / f"{name}.taken"
        self.run("film", url, self.work / "folders", body, taken)
        about = {"film": name, "seed": seed, "cells": CELLS, "frames": FRAMES, "first_sample": FIRST_SAMPLE}
        about["samples_per_frame"] = FRAME_US // SAMPLE_US
        film = self.work / f"{name}.film"
        film.write_bytes(json.dumps(about).encode() + b"\n" + body.read_bytes())
        return film, struct.unpack(f"<{FRAMES * CAMERAS}q", taken.read_bytes())


def spans(taken, log, begins_us):
    """For each image of each frame, from when until when it can have been the newest: sent, and the next one acknowledged."""
    times = struct.unpack(f">{CAMERAS * SAMPLES * 2}q", log.read_bytes())
    sent = [times[camera * SAMPLES * 2 : (camera + 1) * SAMPLES * 2 : 2] for camera in range(CAMERAS)]
    acknowledged = [times[camera * SAMPLES * 2 + 1 : (camera + 1) * SAMPLES * 2 : 2] for camera in range(CAMERAS)]
    found = []
    for index, us in enumerate(taken):
        camera = index % CAMERAS
        # Without an image: until the first one.
        sample = (us - begins_us) // SAMPLE_US if us else -1
        ended = acknowledged[camera][sample + 1] if sample + 1 < SAMPLES else 1 << 62
        found.append((sent[camera][sample] if sample >= 0 else 0, ended))
    return [found[frame * CAMERAS : (frame + 1) * CAMERAS] for frame in range(FRAMES)]


def is_torn(frame):
    """True if there was no instant at which each image can have been the newest."""
    return max(begun for begun, _ in frame) > min(ended for _, ended in frame)


def elsewhere(frames, begins_us):
    """For each frame the cameras whose image was not the newest at the frame's instant."""
    instants = (begins_us + FIRST_SAMPLE * SAMPLE_US + number * FRAME_US for number in range(FRAMES))
    return [
        [camera for camera, (begun, ended) in enumerate(frame) if not begun <= at <= ended] for at, frame in zip(instants, frames)
    ]


def hdfs_films(work, classpath, program, prepared, seed):
    """A film from snapshots for each way of writing: each of a HDFS of its own."""
    films, late_us = {}, {}
    for how in ["hflush", "lengths"]:
        folder = work / how
        folder.mkdir()
        # Of the two, the last is the best that HDFS can do: a snapshot has an open file as long as the name node knows it to be.
        hdfs = hadoop.Hdfs(folder, classpath, datanodes=1, dfs_namenode_snapshot_capture_openfiles=str(how == "lengths").lower())
        try:
            log = work / f"{how}.log"
            told = program.stream(hdfs.address, prepared, log, f"{how}+snapshots")
            folders = [f"/wave/.snapshot/frame-{frame}" for frame in range(FRAMES)]
            film, taken = program.film(hdfs.address, how, folders, seed)
        finally:
            hdfs.end()
        films[how] = Film(film, taken, told["begins_us"], log)
        late_us[how] = told["snapshot_late_us"]
    return films, late_us


def frieze_films(work, frieze, program, prepared, seed):
    with hadoop.served(frieze, work, "--memory", "1024") as ready:
        ask = [frieze, "--server", ready["addresses"][0]]
        subprocess.run([*ask, "mkdir", "/wave"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*ask, "time", "bind", "/wave", TIME_PLUGIN], check=True, stdout=subprocess.DEVNULL)
        told = program.stream(ready["hdfs"], prepared, work / "frieze.log", "lengths")
        films = {}
        for name, prefix in [("system", ""), ("user", "user-")]:
            instants = (told["begins_us"] + FIRST_SAMPLE * SAMPLE_US + frame * FRAME_US for frame in range(FRAMES))
            folders = [f"/.at/{prefix}@{at // 1_000_000}.{at % 1_000_000:06}/wave" for at in instants]
            film, taken = program.film(ready["hdfs"], name, folders, seed)
            # By user time a frame is of one time of the wave's, not of one of the server's.
            films[name] = Film(film, taken, told["begins_us"], work / "frieze.log" if name == "system" else None)
        return films


def figures(films):
    """What recompute.py says of each film, and its tears."""
    judged = subprocess.run(
        [sys.executable, HERE / "recompute.py", *(film.path for film in films.values())], check=True, stdout=subprocess.PIPE
    )
    found = {}
    for line in judged.stdout.splitlines():
        verdict = json.loads(line)
        film = films[verdict["film"]]
        spreads_ms, missing = film.spreads_ms()
        found[verdict["film"]] = {
            "images_of_another_instant": sum(map(len, film.elsewhere)),
            "frames_torn": film.torn,
            "images_missing": missing,
            "behind_ms_mean": round(film.behind_ms(), 1),
            "spread_ms_mean": round(sum(spreads_ms) / FRAMES, 1),
            "spread_ms_max": max(spreads_ms),
            "error_rms_mm": round(verdict["error_rms_mm"], 4),
            "seams_rms_mm": round(verdict["seams_rms_mm"], 4),
            "values_differing": verdict["values_differing"],
        }
    return found


def behind(ms):
    return f"{ms:.0f} ms behind" if ms >= 0 else f"{-ms:.0f} ms ahead"


def words(found, strays):
    """What the picture says below a film."""
    return [
        f"{strays} of 100 images of another instant",
        f"{found['images_of_another_instant']:,} of 10,000 in all frames",
        f"{found['images_missing']:,} images missing",
        f"{behind(found['behind_ms_mean'])}, up to {found['spread_ms_max']:.0f} ms apart",
        f"seams {found['seams_rms_mm']:.2f} mm, error {found['error_rms_mm']:.2f} mm",
    ]


def paint(films, found, out, work):
    about = {
        "title": "One wave in HDFS's snapshots, and in frieze at the same instants",
        "about": f"Frame {SHOWN} of {FRAMES}. Each of 100 cameras sends 20 images a second over a jittering connection of its own. "
        "Into frieze no snapshot was planned.",
        "shown": SHOWN - 1,
        "films": [
            {
                "title": TITLES[name],
                "film": str(film.path),
                "strays": film.elsewhere[SHOWN - 1],
                "lines": words(found[name], len(film.elsewhere[SHOWN - 1])),
            }
            for name, film in films.items()
        ],
        "out": str(out),
    }
    (work / "about.json").write_text(json.dumps(about))
    root = HERE.parent.parent
    command = ["cargo", "run", "--quiet", "--release", "--package", "frieze-wave", "--", "--paint", work / "about.json"]
    subprocess.run(command, check=True, cwd=root)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", default=None, help="the command (default: the release build)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/wave"), help="folder of the picture")
    parser.add_argument("--seed", type=int, default=16, help="of the drops and of the delays")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    hadoop.end_orderly()
    hadoop.needs("examples/wave", "java", "javac", "mvn")
    frieze, classpath = hadoop.command(options.frieze), hadoop.jars()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="frieze-wave-") as work:
        work = pathlib.Path(work)
        prepared = prepare(work, options.seed)
        program = Program(work, classpath)
        films, late_us = hdfs_films(work, classpath, program, prepared, options.seed)
        films.update(frieze_films(work, frieze, program, prepared, options.seed))
        found = figures(films)
        for how, us in late_us.items():
            found[how]["snapshot_late_ms_max"] = us / 1000
        picture = options.out / "beside-hdfs.png"
        paint(films, found, picture.resolve(), work)
    holds = found["system"]["images_of_another_instant"] == 0 and found["user"]["values_differing"] == 0
    if options.json:
        print(json.dumps({"holds": holds, "picture": str(picture), **found}))
    else:
        for name, figure in found.items():
            print(f"{TITLES[name]:<30}" + "  ".join(f"{key.replace('_', ' ')} {value}" for key, value in figure.items()))
        print(f"picture: {picture}")
    if not holds:
        sys.exit("a film of frieze's is not as it must be")


if __name__ == "__main__":
    main()
