"""Figures of the console beside the command, in one run: how soon the slider shows a directory of 10,000 names, what the
page weighs, and how long its first listing takes.

Run by tests/console/run.py --figures (make bench-console). Prints a table, and the same as JSON with FIGURES_JSON set.
"""

import json
import os
import statistics
import subprocess
import time

from console_server import FRIEZE, ConsoleServer
from playwright.sync_api import sync_playwright

NAMES = 10_000
SLIDES = 60
REPEATS = 15


def percentile(values, share):
    """The value below which this share of the others lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main():
    """Measures, and prints."""
    server = ConsoleServer()
    try:
        folder = server.folder / "many"
        folder.mkdir()
        for number in range(NAMES):
            (folder / f"record-{number:05}.bin").touch()
        server.run("put", "-r", folder, "/many")
        figures = measure(server)
    finally:
        server.close()
    rows = [
        ("slider to listing of 10,000 names, p95", f"{figures['slide_p95_ms']:.0f} ms", "100 ms"),
        ("the same, median", f"{figures['slide_p50_ms']:.0f} ms", ""),
        ("weight of the page, uncompressed", f"{figures['page_bytes'] / 1024:.0f} KiB", "150 KiB"),
        ("first listing in the page", f"{figures['first_ms']:.0f} ms", ""),
        ("`frieze ls --json` of the same directory", f"{figures['ls_ms']:.0f} ms", ""),
        ("first listing over `frieze ls --json`", f"{figures['first_ms'] / figures['ls_ms']:.2f}", "1.5"),
    ]
    for name, value, goal in rows:
        print(f"{name:44} {value:>10}   {goal and 'goal ' + goal}")
    if os.environ.get("FIGURES_JSON"):
        print(json.dumps(figures))


def measure(server):
    """All figures."""
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=arguments)
        context = chromium.new_context(viewport={"width": 1200, "height": 850})
        page = context.new_page()
        page.goto(server.link())
        page.get_by_role("button", name="Sign in as").click()
        page.wait_for_url("**/files/")
        url = f"{server.url}/files/many"
        weights, first, listed = {}, [], []

        def weigh(reply):
            weights[reply.url] = reply

        page.on("response", weigh)
        page.goto(url)
        page.wait_for_load_state("networkidle")
        page_bytes = sum(len(reply.body()) for reply in weights.values())
        page.remove_listener("response", weigh)
        # In turn: both see the same machine. The page is loaded as in a new tab of a browser that is open.
        for _ in range(REPEATS):
            page.goto(url, wait_until="domcontentloaded")
            timing = page.evaluate("() => { const t = performance.getEntriesByType('navigation')[0]; return t.domContentLoadedEventEnd - t.startTime; }")
            first.append(timing)
            began = time.monotonic()
            subprocess.run([FRIEZE, "--server", server.address, "ls", "--json", "/many"], stdout=subprocess.DEVNULL, check=True)
            listed.append((time.monotonic() - began) * 1000)
        page.wait_for_load_state("networkidle")
        page.evaluate("performance.clearMeasures()")
        slider = page.locator("#slider")
        for number in range(SLIDES):
            # Near the end of the axis, where the directory has all of its names; another place each time.
            count = page.evaluate("performance.getEntriesByName('frieze-slide').length")
            slider.evaluate("(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(9999 - number))
            while page.evaluate("performance.getEntriesByName('frieze-slide').length") == count:
                pass
        slides = page.evaluate("performance.getEntriesByName('frieze-slide').map((entry) => entry.duration)")
        # The script waits 30 ms for the thumb to rest before it asks.
        slides = [slide + 30 for slide in slides]
        chromium.close()
    return {
        "slide_p50_ms": statistics.median(slides),
        "slide_p95_ms": percentile(slides, 0.95),
        "page_bytes": page_bytes,
        "first_ms": statistics.median(first),
        "ls_ms": statistics.median(listed),
    }


if __name__ == "__main__":
    main()
