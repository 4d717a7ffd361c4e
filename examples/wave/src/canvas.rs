//! A picture being painted: linear light in three channels, so that averages of many samples are right.

use image::{Rgb, RgbImage};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

/// Light in red, green and blue; 1 is white.
pub(crate) type Light = [f32; 3];

/// A picture.
#[derive(Clone)]
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Light>,
}

impl Canvas {
    /// A canvas of one colour; sizes in pixels.
    pub(crate) fn new(width: usize, height: usize, background: Light) -> Canvas {
        Canvas { width, height, pixels: vec![background; width * height] }
    }

    /// Width in pixels.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub(crate) fn height(&self) -> usize {
        self.height
    }

    /// Sets a pixel; outside the canvas nothing happens.
    pub(crate) fn set(&mut self, x: usize, y: usize, light: Light) {
        if x < self.width && y < self.height {
            self.pixels[y * self.width + x] = light;
        }
    }

    /// Mixes a colour into a pixel: `share` 0 leaves it, 1 replaces it.
    pub(crate) fn mix(&mut self, x: usize, y: usize, light: Light, share: f32) {
        if x < self.width && y < self.height {
            let pixel = &mut self.pixels[y * self.width + x];
            *pixel = blend(*pixel, light, share);
        }
    }

    /// Fills a rectangle.
    pub(crate) fn fill(&mut self, left: usize, top: usize, width: usize, height: usize, light: Light) {
        for y in top..top + height {
            for x in left..left + width {
                self.set(x, y, light);
            }
        }
    }

    /// Draws the border of a rectangle inside it.
    pub(crate) fn frame(&mut self, left: usize, top: usize, width: usize, height: usize, thick: usize, light: Light) {
        self.fill(left, top, width, thick, light);
        self.fill(left, top + height - thick, width, thick, light);
        self.fill(left, top, thick, height, light);
        self.fill(left + width - thick, top, thick, height, light);
    }

    /// Lays another canvas over this one.
    pub(crate) fn paste(&mut self, left: usize, top: usize, other: &Canvas) {
        for y in 0..other.height {
            for x in 0..other.width {
                self.set(left + x, top + y, other.pixels[y * other.width + x]);
            }
        }
    }

    /// Writes a line of text with its upper left corner at (left, top).
    pub(crate) fn text(&mut self, left: usize, top: usize, font: Font, light: Light, text: &str) {
        for (index, letter) in text.chars().enumerate() {
            let Some(raster) = get_raster(letter, font.weight(), font.height()) else { continue };
            for (y, row) in raster.rows().enumerate() {
                for (x, &ink) in row.iter().enumerate() {
                    self.mix(left + index * font.letter_width() + x, top + y, light, f32::from(ink) / 255.0);
                }
            }
        }
    }

    /// The same text centred on `middle`.
    pub(crate) fn text_centred(&mut self, middle: usize, top: usize, font: Font, light: Light, text: &str) {
        let half = text.chars().count() * font.letter_width() / 2;
        self.text(middle.saturating_sub(half), top, font, light, text);
    }

    /// A canvas `by` times smaller: each pixel the mean of `by * by`.
    pub(crate) fn shrunk(&self, by: usize) -> Canvas {
        let mut small = Canvas::new(self.width / by, self.height / by, [0.0; 3]);
        let share = 1.0 / (by * by) as f32;
        for y in 0..small.height * by {
            for x in 0..small.width * by {
                let sum = &mut small.pixels[y / by * small.width + x / by];
                let light = self.pixels[y * self.width + x];
                *sum = [sum[0] + light[0] * share, sum[1] + light[1] * share, sum[2] + light[2] * share];
            }
        }
        small
    }

    /// The picture in the bytes that screens expect (sRGB).
    pub(crate) fn to_image(&self) -> RgbImage {
        RgbImage::from_fn(self.width as u32, self.height as u32, |x, y| {
            Rgb(self.pixels[y as usize * self.width + x as usize].map(srgb))
        })
    }
}

/// A size and weight of letters.
#[derive(Clone, Copy)]
pub(crate) enum Font {
    /// 32 pixels, bold.
    Title,
    /// 24 pixels, bold.
    Heading,
    /// 20 pixels.
    Body,
    /// 16 pixels.
    Small,
}

impl Font {
    /// Pixels from one letter to the next.
    pub(crate) fn letter_width(self) -> usize {
        get_raster_width(self.weight(), self.height())
    }

    fn weight(self) -> FontWeight {
        match self {
            Font::Title | Font::Heading => FontWeight::Bold,
            Font::Body | Font::Small => FontWeight::Regular,
        }
    }

    fn height(self) -> RasterHeight {
        match self {
            Font::Title => RasterHeight::Size32,
            Font::Heading => RasterHeight::Size24,
            Font::Body => RasterHeight::Size20,
            Font::Small => RasterHeight::Size16,
        }
    }
}

/// The light of an sRGB colour as designers write it: `0x1b6ca8`.
pub(crate) fn colour(hex: u32) -> Light {
    [hex >> 16, hex >> 8, hex].map(|byte| {
        let part = (byte & 0xff) as f32 / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    })
}

/// A mixture: `share` of `b`, the rest of `a`.
pub(crate) fn blend(a: Light, b: Light, share: f32) -> Light {
    [0, 1, 2].map(|part| a[part] + (b[part] - a[part]) * share)
}

/// A colour between those of `stops`, which are sorted by their place; places outside take the colour at the end.
pub(crate) fn ramp(stops: &[(f32, Light)], place: f32) -> Light {
    let above = stops.partition_point(|stop| stop.0 <= place);
    match (above.checked_sub(1).map(|below| stops[below]), stops.get(above)) {
        (Some((low, from)), Some(&(high, to))) => blend(from, to, (place - low) / (high - low)),
        (Some((_, only)), None) | (None, Some(&(_, only))) => only,
        (None, None) => [0.0; 3],
    }
}

fn srgb(light: f32) -> u8 {
    let light = light.clamp(0.0, 1.0);
    let part = if light <= 0.003_130_8 { light * 12.92 } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
    (part * 255.0).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_come_out_as_they_went_in() {
        let mut canvas = Canvas::new(2, 2, colour(0x1b_6c_a8));
        canvas.set(5, 5, colour(0xff_ff_ff));
        assert!(canvas.to_image().pixels().all(|pixel| pixel.0 == [0x1b, 0x6c, 0xa8]));
    }

    #[test]
    fn a_shrunk_picture_holds_the_mean_light() {
        let mut canvas = Canvas::new(2, 2, [0.0; 3]);
        canvas.set(0, 0, [1.0; 3]);
        assert_eq!(canvas.shrunk(2).pixels, [[0.25; 3]]);
    }

    #[test]
    fn a_ramp_meets_its_stops() {
        let stops = [(0.0, [0.0; 3]), (1.0, [1.0; 3])];
        assert_eq!([-1.0, 0.0, 0.25, 1.0, 2.0].map(|place| ramp(&stops, place)[0]), [0.0, 0.0, 0.25, 1.0, 1.0]);
    }
}
