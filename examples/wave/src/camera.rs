//! A hundred cameras over the tank, and the records they send.
//!
//! The mesh is 10 by 10 cameras; each sees 10 by 10 cells. A record is one image: the time at which it was taken and
//! the heights of its cells. The time plug-in reads that time, so the record says by itself where in the past it
//! belongs.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | user time, microseconds since the Unix epoch, little-endian |
//! | 8 | 800 | heights in metres, row by row, IEEE 754 doubles, little-endian |

use crate::water::CELLS;

/// Cameras along each side of the tank.
pub(crate) const MESH: usize = 10;
/// Cameras over the tank.
pub(crate) const CAMERAS: usize = MESH * MESH;
/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 8 + 8 * IMAGE_CELLS;
/// The time plug-in of the directory: where frieze finds the user time in a record.
pub(crate) const TIME_PLUGIN: &str = "binary:offset=0,width=8,order=little,signed=false,size=any,epoch=unix,unit=us";

/// Cells along each side of an image.
pub(crate) const IMAGE: usize = CELLS / MESH;
const IMAGE_CELLS: usize = IMAGE * IMAGE;

/// One image and when it was taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CameraRecord {
    /// Microseconds since the Unix epoch.
    pub(crate) taken_us: u64,
    /// Heights of the camera's cells, row by row.
    pub(crate) heights: Vec<f64>,
}

/// The name of a camera's file: its row and column in the mesh.
pub(crate) fn name(camera: usize) -> String {
    format!("camera-{}-{}", camera / MESH, camera % MESH)
}

/// The bytes that `camera` sends for the surface `heights` taken at `taken_us`.
pub(crate) fn record(camera: usize, taken_us: u64, heights: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_BYTES);
    bytes.extend_from_slice(&taken_us.to_le_bytes());
    for cell in cells(camera) {
        bytes.extend_from_slice(&heights[cell].to_le_bytes());
    }
    bytes
}

/// Reads a record back; `None` if the bytes are not exactly one.
pub(crate) fn parse(bytes: &[u8]) -> Option<CameraRecord> {
    if bytes.len() != RECORD_BYTES {
        return None;
    }
    let (time, images) = bytes.split_first_chunk()?;
    let (doubles, _) = images.as_chunks();
    Some(CameraRecord {
        taken_us: u64::from_le_bytes(*time),
        heights: doubles.iter().map(|&double| f64::from_le_bytes(double)).collect(),
    })
}

/// Joins one image of every camera to a whole surface.
pub(crate) fn join(records: &[CameraRecord]) -> Vec<f64> {
    let mut surface = vec![0.0; CELLS * CELLS];
    for (camera, record) in records.iter().enumerate() {
        for (cell, &height) in cells(camera).zip(&record.heights) {
            surface[cell] = height;
        }
    }
    surface
}

/// The cells that a camera sees, row by row.
fn cells(camera: usize) -> impl Iterator<Item = usize> {
    let first = camera / MESH * IMAGE * CELLS + camera % MESH * IMAGE;
    (0..IMAGE_CELLS).map(move |cell| first + cell / IMAGE * CELLS + cell % IMAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_of_all_cameras_join_to_the_surface() {
        let surface: Vec<f64> = (0..CELLS * CELLS).map(|cell| cell as f64 / 7.0).collect();
        let records: Vec<CameraRecord> =
            (0..CAMERAS).map(|camera| parse(&record(camera, 5, &surface)).expect("a record")).collect();
        assert!(records.iter().all(|record| record.taken_us == 5));
        assert_eq!(join(&records), surface);
    }

    #[test]
    fn half_a_record_is_none() {
        let whole = record(3, 1, &vec![1.5; CELLS * CELLS]);
        assert_eq!(whole.len(), RECORD_BYTES);
        assert_eq!(parse(&whole[..400]), None);
        assert_eq!(parse(&[]), None);
    }
}
