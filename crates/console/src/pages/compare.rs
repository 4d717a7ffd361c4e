//! A file at two instants, side by side: text, a table, or pictures.

use askama::Template;
use frieze_client::{Fs, InodeId};
use similar::{ChangeTag, TextDiff};

use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::paths::{PagePath, escaped};
use crate::preview::{cells, first_bytes, picture_kind, separator, text_of};
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{bytes, grouped, time_of};

/// Bytes of either side that are compared.
const TEXT_BYTES_MAX: usize = 512 << 10;
/// Rows that are shown.
const ROWS_MAX: usize = 2000;
/// Equal rows that are shown around others.
const AROUND: usize = 3;

/// A line, or a row of a table, on both sides.
struct PairRow {
    /// `same`, `removed`, `added`, `changed`, or `skipped`.
    kind: &'static str,
    left_number: String,
    right_number: String,
    left: Vec<PairCell>,
    right: Vec<PairCell>,
    /// How many equal rows are left out here.
    skipped: String,
}

/// A line, or a cell of a table.
struct PairCell {
    text: String,
    is_changed: bool,
}

/// The two states.
enum Pair {
    Same,
    Lines {
        rows: Vec<PairRow>,
        is_table: bool,
        cut: bool,
    },
    Pictures {
        left: String,
        right: String,
    },
    /// Neither is shown; why.
    Unshown(String),
}

#[derive(Template)]
#[template(path = "compare.html")]
struct ComparePage {
    frame: Frame,
    crumbs: Vec<(String, String)>,
    path: String,
    from_time: String,
    to_time: String,
    left_size: String,
    right_size: String,
    left_raw: String,
    right_raw: String,
    left_href: String,
    right_href: String,
    file: String,
    pair: Pair,
}

pub(super) fn page(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let to = visit.instant_of(query, "to")?.unwrap_or(visit.now());
    let missing = || PageRefusal::bad("from is missing: the instant of the left side");
    let from = visit.instant_of(query, "from")?.ok_or_else(missing)?;
    let (left_fs, right_fs) = (visit.view(Some(from)), visit.view(Some(to)));
    let was = match query.text("was") {
        Some(was) => PagePath::parse(was)?,
        None => name_then(&left_fs, &right_fs, path),
    };
    let (left_len, right_len) = (len_of(&left_fs, &was)?, len_of(&right_fs, path)?);
    let [left_raw, right_raw] =
        [(&was, from), (path, to)].map(|(path, at)| format!("/raw{}?at={at}", escaped(path.as_bytes())));
    let size = |len: Option<u64>| {
        len.map_or_else(|| "not there".to_owned(), |len| format!("{} ({})", bytes(len), grouped(len)))
    };
    let pair = pair_of((&left_fs, &was, left_len), (&right_fs, path, right_len), [&left_raw, &right_raw])?;
    Ok(render(&ComparePage {
        frame: Frame::new(visit, "files", format!("{} at two instants", path.shown())),
        crumbs: path.crumbs(),
        path: path.shown(),
        from_time: time_of(from),
        to_time: time_of(to),
        left_size: size(left_len),
        right_size: size(right_len),
        left_href: super::files::address(was.as_bytes(), Some(from)),
        right_href: super::files::address(path.as_bytes(), Some(to)),
        left_raw,
        right_raw,
        file: super::files::address(path.as_bytes(), Some(to).filter(|to| *to < visit.now())),
        pair,
    }))
}

/// What the file was called then, if it has another name now.
fn name_then(then: &Fs, now: &Fs, path: &PagePath) -> PagePath {
    if then.stat(&target(path)).is_ok() {
        return path.clone();
    }
    let inode = now.stat(&target(path)).map(|stat| InodeId(stat.attr.inode));
    inode.and_then(|inode| then.path_of(inode)).map_or_else(|_| path.clone(), |found| PagePath::of(&found))
}

/// The length of a file; `None` if there is none.
fn len_of(fs: &Fs, path: &PagePath) -> Result<Option<u64>, PageRefusal> {
    match fs.stat(&target(path)) {
        Ok(stat) if stat.attr.kind() == frieze_client::FileKind::File => Ok(Some(stat.attr.size)),
        Ok(_) => Err(PageRefusal::bad(format!("{} is no file: choose two instants under Changes", path.shown()))),
        Err(error) if error.reason() == frieze_client::Reason::NotFound => Ok(None),
        Err(error) => Err(about(path.shown())(error)),
    }
}

type FileSide<'a> = (&'a Fs, &'a PagePath, Option<u64>);

fn pair_of(left: FileSide<'_>, right: FileSide<'_>, raw: [&str; 2]) -> Result<Pair, PageRefusal> {
    let read = |(fs, path, len): FileSide<'_>| match len {
        Some(_) => first_bytes(fs, path, TEXT_BYTES_MAX),
        None => Ok(Vec::new()),
    };
    let (old, new) = (read(left)?, read(right)?);
    let cut = |(_, _, len): FileSide<'_>, bytes: &[u8]| len.unwrap_or(0) > bytes.len() as u64;
    let is_cut = cut(left, &old) || cut(right, &new);
    if old == new && !is_cut {
        return Ok(Pair::Same);
    }
    if picture_kind(&old).is_some() && picture_kind(&new).is_some() {
        let [left, right] = raw.map(|raw| format!("{raw}&inline=1"));
        return Ok(Pair::Pictures { left, right });
    }
    let (Some(old), Some(new)) = (text_of(&old, is_cut), text_of(&new, is_cut)) else {
        return Ok(Pair::Unshown(
            "One of them is no text: save both, and compare them with a program for them.".to_owned(),
        ));
    };
    let columns = separator(right.1);
    let (rows, many) = paired(&old, &new, columns);
    Ok(Pair::Lines { rows, is_table: columns.is_some(), cut: is_cut || many })
}

/// Lines beside each other, equal stretches shortened; true if there are more than are shown.
fn paired(old: &str, new: &str, columns: Option<u8>) -> (Vec<PairRow>, bool) {
    let (old, new) = (records(old, columns), records(new, columns));
    let diff = TextDiff::configure().timeout(DIFF_TIME_MAX).diff_slices(&old, &new);
    let mut rows = Vec::new();
    for (index, group) in diff.grouped_ops(AROUND).iter().enumerate() {
        let first = group.first().map_or(0, |op| op.old_range().start);
        if index > 0 || first > 0 {
            rows.push(skipped_row());
        }
        for op in group {
            let (mut removed, mut added) = (Vec::new(), Vec::new());
            for change in diff.iter_changes(op) {
                let line = change.value().trim_end_matches(['\n', '\r']);
                match change.tag() {
                    ChangeTag::Equal => rows.push(pair_row(
                        "same",
                        Some((change.old_index(), line)),
                        Some((change.new_index(), line)),
                        columns,
                    )),
                    ChangeTag::Delete => removed.push((change.old_index(), line)),
                    ChangeTag::Insert => added.push((change.new_index(), line)),
                }
            }
            for at in 0..removed.len().max(added.len()) {
                let (left, right) = (removed.get(at).copied(), added.get(at).copied());
                let kind = match (left, right) {
                    (Some(_), Some(_)) => "changed",
                    (Some(_), None) => "removed",
                    _ => "added",
                };
                rows.push(pair_row(kind, left, right, columns));
            }
        }
        if rows.len() > ROWS_MAX {
            rows.truncate(ROWS_MAX);
            pad(&mut rows);
            return (rows, true);
        }
    }
    pad(&mut rows);
    (rows, false)
}

/// Gives every row as many cells, so that the right side begins in one column.
fn pad(rows: &mut [PairRow]) {
    let width = rows.iter().map(|row| row.left.len()).max().unwrap_or(1);
    for row in rows.iter_mut().filter(|row| row.kind != "skipped") {
        for side in [&mut row.left, &mut row.right] {
            side.resize_with(width, || PairCell { text: String::new(), is_changed: false });
        }
    }
}

/// Lines; of a table its records, which may have line breaks in quotes.
fn records(text: &str, columns: Option<u8>) -> Vec<&str> {
    let (mut found, mut start, mut is_quoted) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if columns.is_some() => is_quoted = !is_quoted,
            b'\n' if !is_quoted => {
                found.push(&text[start..=at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < text.len() {
        found.push(&text[start..]);
    }
    found
}

fn skipped_row() -> PairRow {
    PairRow {
        kind: "skipped",
        left_number: String::new(),
        right_number: String::new(),
        left: Vec::new(),
        right: Vec::new(),
        skipped: "…".to_owned(),
    }
}

type PairLine<'a> = Option<(Option<usize>, &'a str)>;

fn pair_row(kind: &'static str, left: PairLine<'_>, right: PairLine<'_>, columns: Option<u8>) -> PairRow {
    let number = |line: PairLine<'_>| {
        line.and_then(|(index, _)| index).map_or_else(String::new, |index| (index + 1).to_string())
    };
    let divided = |line: PairLine<'_>| -> Vec<String> {
        match (line, columns) {
            (None, _) => Vec::new(),
            (Some((_, line)), None) => vec![cut(line)],
            (Some((_, line)), Some(separator)) => cells(line.as_bytes(), separator, 1).pop().unwrap_or_default(),
        }
    };
    let (mut old, mut new) = (divided(left), divided(right));
    // Both sides of a row have as many cells.
    let width = if columns.is_some() { old.len().max(new.len()).max(1) } else { 1 };
    old.resize(width, String::new());
    new.resize(width, String::new());
    let marked = |cells: &[String], others: &[String]| -> Vec<PairCell> {
        let cell = |(text, other): (&String, &String)| PairCell {
            text: text.clone(),
            is_changed: kind == "changed" && text != other,
        };
        cells.iter().zip(others).map(cell).collect()
    };
    PairRow {
        kind,
        left_number: number(left),
        right_number: number(right),
        left: marked(&old, &new),
        right: marked(&new, &old),
        skipped: String::new(),
    }
}

/// A line, shortened for the page.
fn cut(line: &str) -> String {
    let end = line.floor_char_boundary(LINE_BYTES_MAX);
    if end < line.len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}

/// Bytes of a line that are shown.
const LINE_BYTES_MAX: usize = 2000;
/// Two long texts that have nothing in common are compared roughly after this time.
const DIFF_TIME_MAX: std::time::Duration = std::time::Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(old: &str, new: &str, columns: Option<u8>) -> Vec<(&'static str, String, String)> {
        let text = |cells: &[PairCell]| {
            let cell = |cell: &PairCell| if cell.is_changed { format!("[{}]", cell.text) } else { cell.text.clone() };
            cells.iter().map(cell).collect::<Vec<_>>().join("|")
        };
        let (rows, _) = paired(old, new, columns);
        rows.iter().map(|row| (row.kind, text(&row.left), text(&row.right))).collect()
    }

    #[test]
    fn lines_stand_beside_each_other() {
        let found = kinds("a\nb\nc\n", "a\nB\nc\nd\n", None);
        let expected = [("same", "a", "a"), ("changed", "[b]", "[B]"), ("same", "c", "c"), ("added", "", "d")];
        assert_eq!(found, expected.map(|(kind, left, right)| (kind, left.to_owned(), right.to_owned())));
    }

    #[test]
    fn cells_of_a_table_are_marked_one_by_one() {
        let found = kinds("t,v\n1,2\n", "t,v\n1,3\n", Some(b','));
        assert_eq!(found[1], ("changed", "1|[2]".to_owned(), "1|[3]".to_owned()));
    }

    #[test]
    fn a_cell_may_have_line_breaks_and_rows_have_one_width() {
        let found = kinds("a,b\n\"x\ny\",3\n\n", "a,b\n\"x\nz\",3\n\n", Some(b','));
        let expected = [("same", "a|b"), ("changed", "[x\ny]|3"), ("same", "|")];
        let left: Vec<(&str, String)> = found.into_iter().map(|(kind, left, _)| (kind, left)).collect();
        assert_eq!(left, expected.map(|(kind, left)| (kind, left.to_owned())));
    }

    #[test]
    fn equal_stretches_are_shortened() {
        let old: String = (0..100).map(|line| format!("{line}\n")).collect();
        let new = old.replace("50\n", "fifty\n");
        let found = kinds(&old, &new, None);
        assert_eq!(found.len(), 2 * AROUND + 2);
        assert_eq!(found[0].0, "skipped");
    }
}
