//! Where an answer continues: `next`, as text that a call passes back unread.

use std::fmt;
use std::str::FromStr;

use frieze_hlc::Hlc;

use crate::error::ToolError;

/// A position in the changes of an interval. The answer to the same position is the same for ever: both ends are exact,
/// and the server pages an interval alike for one page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCursor {
    /// Start of the rest, exclusive.
    pub(crate) after: Hlc,
    /// End of the rest, inclusive.
    pub(crate) upto: Hlc,
    /// Items per request to the server.
    pub(crate) page: u32,
    /// Items of the rest that were in earlier answers.
    pub(crate) skip: u64,
}

impl fmt::Display for PageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.after, self.upto, self.page, self.skip)
    }
}

impl FromStr for PageCursor {
    type Err = ToolError;

    fn from_str(text: &str) -> Result<PageCursor, ToolError> {
        let parts: Vec<&str> = text.split('.').collect();
        let read = || {
            let [after, upto, page, skip] = parts[..] else { return None };
            let (after, upto) = (after.parse().ok()?, upto.parse().ok()?);
            let (page, skip) = (page.parse().ok()?, skip.parse().ok()?);
            (page > 0 && after <= upto).then_some(PageCursor { after, upto, page, skip })
        };
        read().ok_or_else(|| {
            let shown = &text[..text.floor_char_boundary(SHOWN_BYTES)];
            ToolError::Arguments(format!("next {shown:?} is not the next of an earlier answer: pass it back as it was"))
        })
    }
}

/// Bytes of a wrong text that its refusal repeats.
const SHOWN_BYTES: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        let cursor = PageCursor { after: Hlc(0x1000), upto: Hlc(0x660c_66c7_a280_0fff), page: 100, skip: 7 };
        assert_eq!(cursor.to_string().parse::<PageCursor>().unwrap(), cursor);
        for text in ["", "12", "a.b.c.d", "hlc-0000000000002000.hlc-0000000000001000.1.0", &"é".repeat(100)] {
            assert!(text.parse::<PageCursor>().unwrap_err().to_string().contains("as it was"), "{text}");
        }
    }
}
