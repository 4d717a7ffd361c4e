// The film of the wave, for a new file system: a round tank, a hundred cameras, two ways to read their files back.
//
// A drop falls into a square tank. Ten by ten cameras film ten by ten points each, and each writes with a delay of its
// own. The left film is a copy of the files as they are at about one time: images of many instants. The right film is
// the state at one instant. `examples/wave` does the same with files in frieze.
// @ts-check

const POINTS = 100;
const CAMERAS = 10;
const VIEW = POINTS / CAMERAS;
/** Frames that a camera's image may be behind. */
const DELAY_MAX = 14;
const SPEED = 0.35;
const CALM = 0.9985;

/** @param {HTMLCanvasElement} canvas */
export function start(canvas) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const side = 300;
  canvas.width = 2 * side;
  canvas.height = side;
  const delays = Array.from({ length: CAMERAS * CAMERAS }, (_, camera) => (camera * 37 + ((camera * camera) % 11)) % DELAY_MAX);
  let height = new Float32Array(POINTS * POINTS);
  let before = new Float32Array(POINTS * POINTS);
  /** @type {Float32Array[]} */
  const past = [];
  let frame = 0;
  let isPaused = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const image = context.createImageData(POINTS, POINTS);
  const small = document.createElement("canvas");
  small.width = small.height = POINTS;
  const smallContext = /** @type {CanvasRenderingContext2D} */ (small.getContext("2d"));

  function drop() {
    const x = 20 + ((frame * 61) % 60);
    const y = 20 + ((frame * 37) % 60);
    for (let row = -4; row <= 4; row += 1) {
      for (let column = -4; column <= 4; column += 1) {
        height[(y + row) * POINTS + x + column] += 1.6 * Math.exp(-(row * row + column * column) / 6);
      }
    }
  }

  function step() {
    if (frame % 160 === 0) {
      drop();
    }
    const next = new Float32Array(POINTS * POINTS);
    for (let y = 0; y < POINTS; y += 1) {
      for (let x = 0; x < POINTS; x += 1) {
        const at = y * POINTS + x;
        const left = height[x > 0 ? at - 1 : at];
        const right = height[x < POINTS - 1 ? at + 1 : at];
        const up = height[y > 0 ? at - POINTS : at];
        const down = height[y < POINTS - 1 ? at + POINTS : at];
        next[at] = CALM * (2 * height[at] - before[at] + SPEED * (left + right + up + down - 4 * height[at]));
      }
    }
    before = height;
    height = next;
    past.unshift(height);
    past.length = Math.min(past.length, DELAY_MAX + 1);
    frame += 1;
  }

  /** @param {(camera: number) => number} delay @param {number} left */
  function film(delay, left) {
    for (let y = 0; y < POINTS; y += 1) {
      for (let x = 0; x < POINTS; x += 1) {
        const camera = Math.floor(y / VIEW) * CAMERAS + Math.floor(x / VIEW);
        const surface = past[Math.min(past.length - 1, delay(camera))];
        const value = Math.max(-1, Math.min(1, surface[y * POINTS + x] * 1.8));
        const at = (y * POINTS + x) * 4;
        image.data[at] = 14 + 190 * Math.max(0, value);
        image.data[at + 1] = Math.max(26, 92 + 130 * value);
        image.data[at + 2] = Math.max(40, 116 + 110 * value);
        image.data[at + 3] = 255;
      }
    }
    smallContext.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = true;
    context.drawImage(small, left, 0, side - 4, side);
  }

  function draw() {
    context.clearRect(0, 0, canvas.width, canvas.height);
    film((camera) => delays[camera], 0);
    film(() => DELAY_MAX, side + 4);
  }

  function tick() {
    if (!isPaused && !document.hidden) {
      step();
      draw();
    }
    requestAnimationFrame(tick);
  }

  for (let count = 0; count < 60; count += 1) {
    step();
  }
  draw();
  const button = /** @type {HTMLButtonElement} */ (document.getElementById("wave-pause"));
  button.hidden = false;
  const label = () => { button.textContent = isPaused ? "Play" : "Pause"; };
  button.addEventListener("click", () => { isPaused = !isPaused; label(); });
  label();
  requestAnimationFrame(tick);
}
