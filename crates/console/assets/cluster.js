// Plots of the last minute on the page of the cluster, by uPlot.
// @ts-check

const EVERY_MS = 1000;
const POINTS = 60;

const section = document.getElementById("plots");
const uPlot = /** @type {any} */ (window).uPlot;
if (section && uPlot) {
  start(section);
}

/** @param {number} value */
function short(value) {
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit + 1 < units.length) {
    value /= 1000;
    unit += 1;
  }
  return `${Number(value.toPrecision(3))}${units[unit]}`;
}

/** Seconds of a time of day, UTC. @param {number} s since 1970 */
function utc(s) {
  return new Date(s * 1000).toISOString().slice(11, 19);
}

/** @param {HTMLElement} section */
function start(section) {
  section.hidden = false;
  const style = getComputedStyle(document.documentElement);
  const [ink, line, faint] = ["--sea", "--line", "--faint"].map((name) => style.getPropertyValue(name).trim());
  const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };

  /** @param {string} id */
  function plot(id) {
    const place = /** @type {HTMLElement} */ (document.getElementById(id));
    const options = {
      width: place.clientWidth || 300,
      height: 130,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, Math.max(1, most || 0) * 1.1] } },
      series: [{}, { stroke: ink, width: 2, fill: `${ink}22`, points: { show: false } }],
      axes: [{ ...axis, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(utc) }, { ...axis, size: 46, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(short) }],
    };
    return new uPlot(options, [[], []], place);
  }

  const plots = {
    bytes: { plot: plot("plot-bytes"), of: (/** @type {any} */ a, /** @type {any} */ b, /** @type {number} */ s) => Math.max(0, b.log_bytes - a.log_bytes) / s },
    changes: { plot: plot("plot-changes"), of: (/** @type {any} */ a, /** @type {any} */ b, /** @type {number} */ s) => Math.max(0, b.changes - a.changes) / s },
    cpu: { plot: plot("plot-cpu"), of: (/** @type {any} */ a, /** @type {any} */ b, /** @type {number} */ s) => Math.max(0, b.cpu_ns - a.cpu_ns) / s / 1e7 },
  };
  /** @type {any[]} */
  const samples = [];

  async function sample() {
    try {
      const reply = await fetch("/cluster.json");
      if (reply.status === 401) {
        location.reload();
        return;
      }
      if (reply.ok) {
        samples.push(await reply.json());
        samples.splice(0, Math.max(0, samples.length - POINTS - 1));
        draw();
      }
    } catch {
      // The server may be starting again: the next sample says.
    }
  }

  function draw() {
    const times = samples.slice(1).map((found) => found.us / 1e6);
    for (const { plot, of } of Object.values(plots)) {
      const values = samples.slice(1).map((found, index) => {
        const before = samples[index];
        return of(before, found, Math.max(0.001, (found.us - before.us) / 1e6));
      });
      plot.setData([times, values]);
    }
  }

  window.addEventListener("resize", () => {
    for (const [name, { plot }] of Object.entries(plots)) {
      const place = document.getElementById(`plot-${name}`);
      plot.setSize({ width: place?.clientWidth || 300, height: 130 });
    }
  });
  sample();
  setInterval(() => {
    if (!document.hidden) {
      sample();
    }
  }, EVERY_MS);
}
