"""Paints one frame of several films side by side: the surface above, the tank from above with images of another instant marked below.

Used by beside_hdfs.py; needs numpy and matplotlib.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

CELLS, IMAGE, MESH = 100, 10, 10


def frame(path, number):
    with open(path, "rb") as file:
        file.readline()
        values = np.frombuffer(file.read(), "<f8")
    return values.reshape(-1, CELLS, CELLS)[number] * 1000


def behind(ms):
    return f"{ms:.0f} ms behind" if ms >= 0 else f"{-ms:.0f} ms ahead"


def main():
    about = json.load(open(sys.argv[1]))
    films = about["films"]
    surfaces = [frame(film["film"], about["shown"]) for film in films]
    # The last one is the wave itself.
    low, high = surfaces[-1].min(), surfaces[-1].max()
    figure = plt.figure(figsize=(5 * len(films), 9.4))
    x, y = np.meshgrid(np.arange(CELLS), np.arange(CELLS))
    for column, (film, surface) in enumerate(zip(films, surfaces)):
        above = figure.add_subplot(2, len(films), column + 1, projection="3d")
        above.plot_surface(x, y, surface, cmap="viridis", vmin=low, vmax=high, rcount=CELLS, ccount=CELLS, linewidth=0)
        above.set_zlim(low, high)
        above.set_axis_off()
        above.view_init(52, -60)
        above.set_title(film["title"], fontsize=15)
        below = figure.add_subplot(2, len(films), len(films) + column + 1)
        below.imshow(surface, cmap="viridis", vmin=low, vmax=high)
        for camera in film["elsewhere"]:
            corner = (camera % MESH * IMAGE - 0.5, camera // MESH * IMAGE - 0.5)
            below.add_patch(Rectangle(corner, IMAGE, IMAGE, fill=False, edgecolor="red", linewidth=1.6))
        below.set_xticks([])
        below.set_yticks([])
        found = film["found"]
        below.set_xlabel(
            f"{found['images_of_another_instant']:,} of 10,000 images of another instant (here {len(film['elsewhere'])}), "
            f"{found['images_missing']} missing;\n{behind(found['behind_ms_mean'])} on average, "
            f"up to {found['spread_ms_max']:.0f} ms apart; error {found['error_rms_mm']:.2f} mm",
            fontsize=10,
        )
    figure.tight_layout()
    figure.savefig(about["out"], dpi=80)


if __name__ == "__main__":
    main()
