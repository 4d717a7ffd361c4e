//! Paints the surface of the water as a shaded body in perspective: triangles, a depth buffer, light per pixel.

use crate::camera::{IMAGE, MESH};
use crate::canvas::{Canvas, Light, blend, colour, ramp};
use crate::water::CELLS;

/// Paints the water of the tank over the background of a new canvas of `width` by `height` pixels; each pixel is the
/// mean of `fine * fine` samples. `marked` are cameras to outline.
pub(crate) fn paint(heights: &[f64], marked: &[usize], width: usize, height: usize, fine: usize) -> Canvas {
    let background = colour(BACKGROUND);
    let mut scene = Scene {
        canvas: Canvas::new(width * fine, height * fine, background),
        depth: vec![f32::INFINITY; width * height * fine * fine],
    };
    let palette = Palette::new();
    let top = Top { heights, marked: (0..MESH * MESH).map(|camera| marked.contains(&camera)).collect(), palette };
    for y in 0..CELLS - 1 {
        for x in 0..CELLS - 1 {
            let corner = |dx: usize, dy: usize| top.vertex(x + dx, y + dy);
            let (a, b, c, d) = (corner(0, 0), corner(1, 0), corner(0, 1), corner(1, 1));
            let seam = (x + 1).is_multiple_of(IMAGE) || (y + 1).is_multiple_of(IMAGE);
            for corners in [[a, b, c], [b, d, c]] {
                let corners = if seam { flat(corners) } else { corners };
                scene.triangle(corners, |at| top.light(at));
            }
        }
    }
    for side in WallSide::ALL {
        for step in 0..CELLS - 1 {
            let edge = |step: usize| {
                let (x, y) = side.cell(step);
                let upper = top.vertex(x, y);
                (upper, Vertex { place: [upper.place[0], upper.place[1], FLOOR], ..upper })
            };
            let ((a, c), (b, d)) = (edge(step), edge(step + 1));
            scene.triangle([a, b, c], |at| top.glass(at, side));
            scene.triangle([b, d, c], |at| top.glass(at, side));
        }
    }
    scene.canvas.shrunk(fine)
}

/// The colour of a height in millimetres.
pub(crate) fn height_colour(palette: &Palette, height_mm: f32) -> Light {
    ramp(&palette.water, height_mm / FULL_MM)
}

/// Colours of the water, from the deepest trough to the highest crest.
pub(crate) struct Palette {
    water: [(f32, Light); 7],
}

impl Palette {
    /// The palette of every picture.
    pub(crate) fn new() -> Palette {
        let stops = [
            (-1.0, 0x07_12_3a),
            (-0.5, 0x0d_33_6e),
            (-0.15, 0x14_5f_9c),
            (0.1, 0x1e_88_b5),
            (0.4, 0x4c_c3_cf),
            (0.7, 0xa9_ea_df),
            (1.0, 0xfd_ff_f4),
        ];
        Palette { water: stops.map(|(place, hex)| (place, colour(hex))) }
    }
}

/// Behind everything.
pub(crate) const BACKGROUND: u32 = 0x0c_10_1a;
/// Outline of a camera whose image belongs to another instant.
pub(crate) const MARK: u32 = 0xff_6b_4a;

/// Height in mm at which the palette ends.
const FULL_MM: f32 = 1.4;
/// Length in the picture of a millimetre of height, where the tank is 2 wide: what makes ripples of a millimetre seen.
const LIFT_PER_MM: f32 = 0.085;
const FLOOR: f32 = -0.34;
const EYE: [f32; 3] = [1.9, -3.6, 2.75];
const LOOK_AT: [f32; 3] = [0.0, -0.06, -0.12];
/// Width of what the eye sees at distance 1.
const FIELD: f32 = 0.62;
const SUN: [f32; 3] = [-0.62, 0.50, 0.60];

#[derive(Clone, Copy)]
struct Vertex {
    /// In the tank: x to the right, y to the back, z up; walls at -1 and 1.
    place: [f32; 3],
    normal: [f32; 3],
    height_mm: f32,
}

#[derive(Clone, Copy, PartialEq)]
enum WallSide {
    Front,
    Right,
}

/// The surface and the colours that it takes.
struct Top<'a> {
    heights: &'a [f64],
    marked: Vec<bool>,
    palette: Palette,
}

struct Scene {
    canvas: Canvas,
    depth: Vec<f32>,
}

impl WallSide {
    /// The sides of the tank that the eye sees.
    const ALL: [WallSide; 2] = [WallSide::Front, WallSide::Right];

    fn cell(self, step: usize) -> (usize, usize) {
        match self {
            WallSide::Front => (step, CELLS - 1),
            WallSide::Right => (CELLS - 1, step),
        }
    }
}

impl Top<'_> {
    fn vertex(&self, x: usize, y: usize) -> Vertex {
        let height_mm = |x: usize, y: usize| (self.heights[y * CELLS + x] * 1000.0) as f32;
        let slope =
            |low: f32, high: f32, cells: usize| (high - low) * LIFT_PER_MM / (cells as f32 * 2.0 / (CELLS - 1) as f32);
        // The slope within the image alone: what the next camera saw is another matter.
        let beside = |cell: usize| {
            let first = cell / IMAGE * IMAGE;
            (cell.saturating_sub(1).max(first), (cell + 1).min(first + IMAGE - 1))
        };
        let ((left, right), (back, front)) = (beside(x), beside(y));
        let along_x = slope(height_mm(left, y), height_mm(right, y), right - left);
        let along_y = slope(height_mm(x, back), height_mm(x, front), front - back);
        let spread = |cell: usize| cell as f32 * 2.0 / (CELLS - 1) as f32 - 1.0;
        Vertex {
            place: [spread(x), -spread(y), height_mm(x, y) * LIFT_PER_MM],
            normal: unit([-along_x, along_y, 1.0]),
            height_mm: height_mm(x, y),
        }
    }

    /// Light that leaves the surface towards the eye.
    fn light(&self, at: Vertex) -> Light {
        let normal = unit(at.normal);
        let sun = unit(SUN);
        let to_eye = unit(difference(EYE, at.place));
        let water = height_colour(&self.palette, at.height_mm);
        let lit = 0.42 + 0.75 * dot(normal, sun).max(0.0);
        let halfway = unit([sun[0] + to_eye[0], sun[1] + to_eye[1], sun[2] + to_eye[2]]);
        let glint = dot(normal, halfway).max(0.0).powi(60) * 0.55;
        // Schlick: the flatter the look, the more sky in it.
        let sky = 0.03 + 0.55 * (1.0 - dot(normal, to_eye).max(0.0)).powi(4);
        let shaded = blend(water.map(|part| part * lit), colour(0xb9_d9_f2), sky).map(|part| part + glint);
        self.with_lines(at, shaded)
    }

    /// Light through the glass: darker with depth.
    fn glass(&self, at: Vertex, side: WallSide) -> Light {
        let depth = ((at.place[2] - FLOOR) / -FLOOR).clamp(0.0, 1.3);
        let shade = if side == WallSide::Front { 0.55 } else { 0.34 };
        let water = blend(colour(0x06_14_2c), colour(0x22_7f_ad), depth * depth * 0.8);
        let line = (at.height_mm * LIFT_PER_MM - at.place[2]).abs() < 0.008;
        if line { colour(0xbf_ee_f2) } else { water.map(|part| part * shade) }
    }

    /// Draws the seams between cameras, and in another colour around those that are marked.
    fn with_lines(&self, at: Vertex, light: Light) -> Light {
        // Seams lie between cells, half a cell beyond the last of a camera.
        let across = |place: f32| ((place + 1.0) / 2.0 * (CELLS - 1) as f32 + 0.5) / IMAGE as f32;
        let (x, y) = (across(at.place[0]), across(-at.place[1]));
        let tile = |place: f32| (place.max(0.0) as usize).min(MESH - 1);
        let edge = [x, y].map(|place| (place - place.round()).abs()).into_iter().fold(f32::MAX, f32::min);
        if self.marked[tile(y) * MESH + tile(x)] && edge < 0.075 {
            return colour(MARK);
        }
        if edge < 0.025 { blend(light, colour(0x03_0a_18), 0.35) } else { light }
    }
}

impl Scene {
    /// Paints a triangle where nothing nearer was painted before.
    fn triangle(&mut self, corners: [Vertex; 3], light: impl Fn(Vertex) -> Light) {
        let (width, height) = (self.canvas.width(), self.canvas.height());
        let seen = corners.map(|corner| project(corner.place, width as f32, height as f32));
        let area = side_of(seen[0], seen[1], seen[2]);
        if area == 0.0 {
            return;
        }
        let bounds = |part: usize, size: usize| {
            let low = seen.iter().map(|corner| corner[part]).fold(f32::MAX, f32::min).max(0.0);
            let high = seen.iter().map(|corner| corner[part]).fold(f32::MIN, f32::max).min(size as f32 - 1.0);
            low.floor() as usize..(high.ceil() + 1.0).max(0.0) as usize
        };
        for y in bounds(1, height) {
            for x in bounds(0, width) {
                let here = [x as f32 + 0.5, y as f32 + 0.5, 0.0];
                // Barycentric: what share each corner has in this pixel.
                let share = [
                    side_of(seen[1], seen[2], here) / area,
                    side_of(seen[2], seen[0], here) / area,
                    side_of(seen[0], seen[1], here) / area,
                ];
                if x >= width || y >= height || share.iter().any(|&part| part < 0.0) {
                    continue;
                }
                let depth = share[0] * seen[0][2] + share[1] * seen[1][2] + share[2] * seen[2][2];
                let nearest = &mut self.depth[y * width + x];
                if depth < *nearest {
                    *nearest = depth;
                    self.canvas.set(x, y, light(between(&corners, share)));
                }
            }
        }
    }
}

/// The triangle with its own slope in every corner: a step between two images shows as a cliff.
fn flat(corners: [Vertex; 3]) -> [Vertex; 3] {
    let [a, b, c] = corners.map(|corner| corner.place);
    let across = cross(difference(b, a), difference(c, a));
    let normal = unit(across.map(|part| part * across[2].signum()));
    corners.map(|corner| Vertex { normal, ..corner })
}

fn between(corners: &[Vertex; 3], share: [f32; 3]) -> Vertex {
    let [a, b, c] = corners;
    let mixed = |a: f32, b: f32, c: f32| a * share[0] + b * share[1] + c * share[2];
    Vertex {
        place: [0, 1, 2].map(|part| mixed(a.place[part], b.place[part], c.place[part])),
        normal: [0, 1, 2].map(|part| mixed(a.normal[part], b.normal[part], c.normal[part])),
        height_mm: mixed(a.height_mm, b.height_mm, c.height_mm),
    }
}

/// Where a place appears: pixels to the right and down, and its distance from the eye.
fn project(place: [f32; 3], width: f32, height: f32) -> [f32; 3] {
    let ahead = unit(difference(LOOK_AT, EYE));
    let right = unit(cross(ahead, [0.0, 0.0, 1.0]));
    let up = cross(right, ahead);
    let from_eye = difference(place, EYE);
    let distance = dot(from_eye, ahead);
    let scale = width / FIELD / distance;
    [width / 2.0 + dot(from_eye, right) * scale, height / 2.0 - dot(from_eye, up) * scale, distance]
}

/// Twice the area of a triangle, negative if it turns the other way.
fn side_of(a: [f32; 3], b: [f32; 3], c: [f32; 3]) -> f32 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

fn difference(a: [f32; 3], b: [f32; 3]) -> [f32; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: [f32; 3], b: [f32; 3]) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f32; 3], b: [f32; 3]) -> [f32; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn unit(a: [f32; 3]) -> [f32; 3] {
    let length = dot(a, a).sqrt();
    a.map(|part| part / length)
}
