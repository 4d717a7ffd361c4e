//! What a page shows of a file's bytes: text, a table, a picture, or that it is neither.
//!
//! Guarantees: of the largest file no more than [`PREVIEW_BYTES_MAX`] bytes are read; a picture is a format that
//! browsers draw without running anything (never SVG), by its bytes and not by its name.

use frieze_client::{Fs, OpenFlags};

use crate::error::{PageRefusal, about};
use crate::paths::PagePath;
use crate::visit::target;

/// Bytes of a file that a page reads.
pub(crate) const PREVIEW_BYTES_MAX: usize = 64 << 10;
/// The largest picture that a page shows.
pub(crate) const PICTURE_BYTES_MAX: u64 = 16 << 20;
/// Rows and columns of a table that a page shows.
const ROWS_MAX: usize = 200;
const COLUMNS_MAX: usize = 30;
/// Bytes of a cell that a page shows.
const CELL_BYTES_MAX: usize = 200;

/// What a page shows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preview {
    Empty,
    /// Text; `cut`: the file goes on.
    Text {
        text: String,
        cut: bool,
    },
    /// Rows, the first of them names of columns; `cut`: there are more.
    Table {
        head: Vec<String>,
        rows: Vec<Vec<String>>,
        cut: bool,
    },
    /// A picture that the browser fetches itself.
    Picture,
    /// The first bytes, in hexadecimal.
    Binary {
        rows: Vec<String>,
        cut: bool,
    },
}

/// The first bytes of a file.
pub(crate) fn first_bytes(fs: &Fs, path: &PagePath, max: usize) -> Result<Vec<u8>, PageRefusal> {
    let file = fs.open(&target(path), OpenFlags::READ).map_err(about(path.shown()))?;
    let mut bytes = vec![0; max];
    let mut len = 0;
    while len < max {
        match file.read_at(len as u64, &mut bytes[len..]).map_err(about(path.shown()))? {
            0 => break,
            count => len += count,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// What a page shows of a file of `size` bytes.
///
/// # Errors
/// Those of reading it.
pub(crate) fn preview(fs: &Fs, path: &PagePath, size: u64) -> Result<Preview, PageRefusal> {
    let bytes = first_bytes(fs, path, PREVIEW_BYTES_MAX)?;
    Ok(preview_of(path, &bytes, size))
}

fn preview_of(path: &PagePath, bytes: &[u8], size: u64) -> Preview {
    let cut = size > bytes.len() as u64;
    if bytes.is_empty() {
        return Preview::Empty;
    }
    if picture_kind(bytes).is_some() && size <= PICTURE_BYTES_MAX {
        return Preview::Picture;
    }
    match text_of(bytes, cut) {
        Some(text) => match separator(path).and_then(|separator| table(text.as_bytes(), separator, cut)) {
            Some(table) => table,
            None => Preview::Text { text, cut },
        },
        None => Preview::Binary { rows: hex_rows(&bytes[..bytes.len().min(512)]), cut: size > 512 },
    }
}

/// The type of a picture, by its first bytes.
pub(crate) fn picture_kind(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if bytes.len() > 12 && bytes.starts_with(b"RIFF") && &bytes[8..12] == b"WEBP" {
        Some("image/webp")
    } else {
        None
    }
}

/// Bytes as text, if they are; a character that a cut divides is left out.
pub(crate) fn text_of(bytes: &[u8], cut: bool) -> Option<String> {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if cut && error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    (!valid.contains('\0')).then(|| valid.to_owned())
}

/// What divides the cells of a table, by the name of the file.
pub(crate) fn separator(path: &PagePath) -> Option<u8> {
    let name = path.name().to_ascii_lowercase();
    if name.ends_with(b".csv") {
        Some(b',')
    } else if name.ends_with(b".tsv") || name.ends_with(b".tab") {
        Some(b'\t')
    } else {
        None
    }
}

/// The rows of a table; `None` if it has fewer than two columns.
fn table(text: &[u8], separator: u8, cut: bool) -> Option<Preview> {
    let mut rows = cells(text, separator, ROWS_MAX + 1);
    if rows.is_empty() || rows[0].len() < 2 {
        return None;
    }
    let more = rows.len() > ROWS_MAX;
    rows.truncate(ROWS_MAX);
    let head = rows.remove(0);
    Some(Preview::Table { head, rows, cut: cut || more })
}

/// The cells of a table's rows, by RFC 4180.
pub(crate) fn cells(mut text: &[u8], separator: u8, rows_max: usize) -> Vec<Vec<String>> {
    let mut reader = csv_core::ReaderBuilder::new().delimiter(separator).build();
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), Vec::new());
    let mut out = [0; 256];
    while rows.len() < rows_max {
        let (result, read, written) = reader.read_field(text, &mut out);
        text = &text[read..];
        if cell.len() < CELL_BYTES_MAX {
            cell.extend_from_slice(&out[..written]);
        }
        match result {
            csv_core::ReadFieldResult::Field { record_end } => {
                if row.len() < COLUMNS_MAX {
                    let end = cell.len().min(CELL_BYTES_MAX);
                    row.push(String::from_utf8_lossy(&cell[..end]).into_owned());
                }
                cell.clear();
                if record_end {
                    rows.push(std::mem::take(&mut row));
                }
            }
            csv_core::ReadFieldResult::End => break,
            csv_core::ReadFieldResult::OutputFull | csv_core::ReadFieldResult::InputEmpty => {}
        }
    }
    rows
}

/// Bytes as `xxd` shows them.
fn hex_rows(bytes: &[u8]) -> Vec<String> {
    let row = |(index, row): (usize, &[u8])| {
        let digits: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let letters: String =
            row.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }).collect();
        format!("{:06x}  {:<47}  {letters}", index * 16, digits.join(" "))
    };
    bytes.chunks(16).enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, bytes: &[u8]) -> Preview {
        preview_of(&PagePath::of(name.as_bytes()), bytes, bytes.len() as u64)
    }

    #[test]
    fn what_is_shown_depends_on_the_bytes() {
        assert_eq!(of("/a", b""), Preview::Empty);
        assert_eq!(of("/a.png", b"not a picture"), Preview::Text { text: "not a picture".to_owned(), cut: false });
        assert_eq!(of("/a", b"\x89PNG\r\n\x1a\n...."), Preview::Picture);
        assert!(matches!(of("/a.svg", b"<svg onload='alert(1)'/>"), Preview::Text { .. }), "it may run scripts");
        assert!(matches!(of("/a", b"\x00\xff"), Preview::Binary { .. }));
        let table = of("/a.csv", b"t,\"a, b\"\n1,2\n");
        let words = |row: &[&str]| row.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let expected = Preview::Table { head: words(&["t", "a, b"]), rows: vec![words(&["1", "2"])], cut: false };
        assert_eq!(table, expected);
    }

    #[test]
    fn a_character_that_is_cut_ends_the_text() {
        let bytes = "aé".as_bytes();
        assert_eq!(text_of(&bytes[..2], true).as_deref(), Some("a"));
        assert_eq!(text_of(&bytes[..2], false), None);
    }
}
