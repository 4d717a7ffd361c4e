// The slider over whatever a page shows: heat along the axis, and the state of the instant under the thumb.
// Without this script every page works: its links and forms lead to instants too.
// @ts-check

const STEPS = 10000;
const CELLS = 160;
/** Lengths of the axis in seconds; 0: since the first instant. */
const LENGTHS = [600, 3600, 86400, 604800, 0];

const bar = document.getElementById("time");
if (bar) {
  startTime(bar);
}
const wave = document.getElementById("wave");
if (wave && wave.dataset.script) {
  import(wave.dataset.script).then((module) => module.start(wave));
}

/** @param {number} us microseconds since 1970 */
function timeText(us) {
  return new Date(us / 1000).toISOString().replace("T", " ").replace("Z", "");
}

/** The place of an instant in an address: an instant in microseconds, UTC. @param {number} us */
function instantText(us) {
  const whole = Math.floor(us / 1e6);
  const rest = String(Math.floor(us - whole * 1e6)).padStart(6, "0");
  return new Date(whole * 1000).toISOString().slice(0, 19) + "." + rest + "Z";
}

/** @param {HTMLElement} bar */
function startTime(bar) {
  const page = bar.dataset.page ?? "files";
  const path = bar.dataset.path ?? "/";
  let now = Number(bar.dataset.nowUs);
  const earliest = Number(bar.dataset.earliestUs);
  let shown = Number(bar.dataset.atUs);
  let isNow = bar.dataset.at === "";
  const slider = /** @type {HTMLInputElement} */ (document.getElementById("slider"));
  const canvas = /** @type {HTMLCanvasElement} */ (document.getElementById("heat"));
  const label = /** @type {HTMLElement} */ (bar.querySelector(".shown .label"));
  const clock = /** @type {HTMLElement} */ (bar.querySelector(".shown time"));
  const spoken = /** @type {HTMLElement} */ (document.getElementById("spoken"));
  const field = /** @type {HTMLInputElement} */ (document.getElementById("at"));
  const state = document.getElementById("state");
  const axis = /** @type {HTMLElement} */ (bar.querySelector(".axis"));
  axis.hidden = false;

  let length = startLength();
  let to = now;
  let from = earliest;
  /** @type {{ from: number, to: number, counts: number[], whole: boolean }} */
  let found = { from: 0, to: 1, counts: [], whole: true };
  let asked = 0;
  /** @type {AbortController | undefined} */
  let running;
  let timer = 0;

  /** The shortest axis that has the instant that is shown, and the life of a young file system. */
  function startLength() {
    const kept = Number(sessionStorage.getItem("frieze-axis") ?? NaN);
    const reach = (now - shown) / 1e6;
    if (LENGTHS.includes(kept) && (kept === 0 || kept > reach)) {
      return kept;
    }
    const age = (now - earliest) / 1e6;
    return LENGTHS.find((seconds) => seconds > reach * 1.2 && (seconds >= age || seconds >= 3600)) ?? 0;
  }

  function setAxis() {
    to = now;
    from = length === 0 ? earliest : Math.max(earliest, to - length * 1e6);
    if (to - from < 1e6) {
      from = to - 1e6;
    }
    for (const button of bar.querySelectorAll("button[data-seconds]")) {
      button.setAttribute("aria-pressed", String(Number(/** @type {HTMLElement} */ (button).dataset.seconds) === length));
    }
    /** @type {HTMLElement} */ (document.getElementById("axis-from")).textContent = timeText(from).slice(0, 19);
    /** @type {HTMLElement} */ (document.getElementById("axis-to")).textContent = timeText(to).slice(11, 19);
    place();
    heat();
  }

  function place() {
    const share = isNow ? 1 : (shown - from) / (to - from);
    slider.value = String(Math.round(Math.min(1, Math.max(0, share)) * STEPS));
    speak();
  }

  function speak() {
    const text = isNow ? "now" : timeText(shown);
    slider.setAttribute("aria-valuetext", text);
  }

  async function heat() {
    const number = ++asked;
    found = { from, to, counts: [], whole: true };
    draw();
    const query = new URLSearchParams({ from: String(Math.floor(from)), to: String(Math.floor(to)), cells: String(CELLS) });
    try {
      const reply = await fetch(`/activity${path}?${query}`);
      if (reply.ok && number === asked) {
        found = await reply.json();
        /** @type {HTMLElement} */ (document.getElementById("heat-note")).hidden = found.whole;
        draw();
      }
    } catch {
      // The slider works without its heat.
    }
  }

  function draw() {
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    if (!context) {
      return;
    }
    context.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--sea");
    const most = Math.log1p(Math.max(1, ...found.counts));
    const cellWidth = ((found.to - found.from) / found.counts.length / (to - from)) * width;
    const start = ((found.from - from) / (to - from)) * width;
    found.counts.forEach((count, cell) => {
      if (count > 0) {
        // One change is seen, and a thousand do not hide it.
        const share = Math.log1p(count) / most;
        context.globalAlpha = 0.3 + 0.7 * share;
        const tall = 5 + (height - 5) * share;
        context.fillRect(start + cell * cellWidth, height - tall, Math.max(1.5, cellWidth - 0.8), tall);
      }
    });
    context.globalAlpha = 1;
  }

  /** Shows the state of an instant. @param {string} text the instant as an address has it; empty for now */
  async function show(text) {
    running?.abort();
    running = new AbortController();
    const began = performance.now();
    const address = `/${page}${path}${text ? `?at=${encodeURIComponent(text)}` : ""}`;
    if (page !== "files" || !state) {
      location.assign(address);
      return;
    }
    try {
      const reply = await fetch(address + (text ? "&" : "?") + "part=state", { signal: running.signal });
      const html = await reply.text();
      if (reply.status === 401) {
        location.reload();
        return;
      }
      if (html.startsWith("<!doctype")) {
        // A refusal is a page of its own.
        location.assign(address);
        return;
      }
      state.innerHTML = html;
      history.replaceState(null, "", address);
      keepInstant(text);
      requestAnimationFrame(() => {
        performance.measure("frieze-slide", { start: began, end: performance.now() });
      });
    } catch (error) {
      if (!(error instanceof DOMException && error.name === "AbortError")) {
        spoken.textContent = "The server does not answer.";
        label.textContent = "The server does not answer";
      }
    }
  }

  /** Links and forms of the page lead to the instant that is shown. @param {string} text */
  function keepInstant(text) {
    const query = text ? `?at=${encodeURIComponent(text)}` : "";
    for (const link of document.querySelectorAll(".crumbs a, a.keep-at")) {
      const anchor = /** @type {HTMLAnchorElement} */ (link);
      anchor.href = new URL(anchor.href).pathname + query;
    }
    for (const id of ["previous", "next"]) {
      const anchor = /** @type {HTMLAnchorElement} */ (document.getElementById(id));
      const url = new URL(anchor.href);
      if (text) {
        url.searchParams.set("at", text);
      } else {
        url.searchParams.delete("at");
      }
      anchor.href = url.pathname + url.search;
    }
  }

  function paint() {
    bar.classList.toggle("past", !isNow);
    label.textContent = isNow ? "Now" : "As of";
    clock.textContent = timeText(shown);
    clock.setAttribute("datetime", instantText(shown));
    clock.title = instantText(shown);
    field.value = isNow ? "" : instantText(shown);
    speak();
  }

  function slide() {
    const share = Number(slider.value) / STEPS;
    isNow = share >= 1;
    shown = isNow ? now : Math.floor(from + share * (to - from));
    paint();
    // One request at a time is enough for the eye; the last one counts.
    clearTimeout(timer);
    timer = window.setTimeout(() => show(isNow ? "" : instantText(shown)), 30);
  }
  slider.addEventListener("input", slide);
  slider.addEventListener("change", () => { spoken.textContent = isNow ? "Now" : `As of ${timeText(shown)}`; });

  for (const button of bar.querySelectorAll("button[data-seconds]")) {
    button.addEventListener("click", () => {
      length = Number(/** @type {HTMLElement} */ (button).dataset.seconds);
      sessionStorage.setItem("frieze-axis", String(length));
      if (length !== 0 && shown < now - length * 1e6) {
        sessionStorage.removeItem("frieze-axis");
      }
      setAxis();
    });
  }

  for (const id of ["previous", "next"]) {
    document.getElementById(id)?.addEventListener("click", async (event) => {
      if (page !== "files" || event.ctrlKey || event.metaKey || event.shiftKey) {
        return;
      }
      event.preventDefault();
      clearTimeout(timer);
      running?.abort();
      const url = new URL(/** @type {HTMLAnchorElement} */ (document.getElementById(id)).href);
      // From what is shown, which may be newer than the links.
      if (isNow) {
        url.searchParams.delete("at");
      } else {
        url.searchParams.set("at", field.value);
      }
      url.searchParams.set("as", "json");
      const reply = await fetch(url);
      if (!reply.ok || !(reply.headers.get("content-type") ?? "").includes("json")) {
        location.assign(`/${page}${path}`);
        return;
      }
      const found = await reply.json();
      isNow = false;
      shown = found.us;
      paint();
      clock.textContent = found.time;
      field.value = found.at;
      place();
      spoken.textContent = `As of ${found.time}`;
      await show(found.at);
    });
  }

  // More names arrive below those that are there.
  document.addEventListener("click", async (event) => {
    const link = event.target instanceof Element ? event.target.closest("a.more") : null;
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) {
      return;
    }
    const body = document.querySelector("table.names tbody");
    if (!body) {
      return;
    }
    event.preventDefault();
    const url = new URL(/** @type {HTMLAnchorElement} */ (link).href);
    url.searchParams.set("part", "state");
    const reply = await fetch(url);
    if (!reply.ok) {
      location.assign(/** @type {HTMLAnchorElement} */ (link).href);
      return;
    }
    const part = document.createElement("template");
    part.innerHTML = await reply.text();
    const rows = [...part.content.querySelectorAll("table.names tbody tr")];
    const first = rows.find((row) => row.querySelector("a")?.textContent !== "..");
    body.append(...rows.filter((row) => row.querySelector("a")?.textContent !== ".."));
    const next = part.content.querySelector("a.more");
    if (next) {
      link.setAttribute("href", next.getAttribute("href") ?? "");
    } else {
      link.remove();
    }
    first?.querySelector("a")?.focus();
  });

  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  setAxis();
}
