//! Text for people: aligned, coloured where asked for, and harmless, whatever an agent or a tool wrote.

use runlog_schemas::id::{
    Epoch, Fingerprint, JournalSeq, Offset, OrEmpty, PartitionId, RecordId, RunId, WriterId, WriterSeq,
};
use std::{borrow::Cow, fmt::Write as _};

/// What a cell's colour says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Warn,
    Dim,
    Strong,
}

impl Tone {
    /// The parameter of the terminal's "select graphic rendition" (ECMA-48).
    fn rendition(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Bad => Some("31"),
            Self::Warn => Some("33"),
            Self::Dim => Some("2"),
            Self::Strong => Some("1"),
        }
    }
}

/// A piece of text with its tone; numbers stand at the right of their column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
    right: bool,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: clean(text).into_owned(), ..Self::default() }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

macro_rules! ids {
    ($($id:ty),* as text; $($number:ty),* as number) => {
        $(impl From<&$id> for Cell {
            fn from(id: &$id) -> Self {
                id.as_str().into()
            }
        })*
        $(impl From<$number> for Cell {
            fn from(number: $number) -> Self {
                number.get().into()
            }
        })*
    };
}
ids! { RunId, RecordId, Fingerprint, OrEmpty<RecordId>, OrEmpty<WriterId> as text; JournalSeq, WriterSeq, Epoch, Offset, PartitionId as number }

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self { text: number.to_string(), right: true, ..Self::default() }
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        u64::from(number).into()
    }
}

/// Nothing is told by a dash.
impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(|| Self::from("-").dim(), Into::into)
    }
}

impl Cell {
    pub(crate) fn good(self) -> Self {
        Self { tone: Tone::Good, ..self }
    }

    pub(crate) fn bad(self) -> Self {
        Self { tone: Tone::Bad, ..self }
    }

    pub(crate) fn warn(self) -> Self {
        Self { tone: Tone::Warn, ..self }
    }

    pub(crate) fn dim(self) -> Self {
        Self { tone: Tone::Dim, ..self }
    }

    pub(crate) fn strong(self) -> Self {
        Self { tone: Tone::Strong, ..self }
    }

    /// At the right of its column, as numbers are.
    pub(crate) fn right(self) -> Self {
        Self { right: true, ..self }
    }

    /// One of the words that commands answer with, in its colour.
    pub(crate) fn word(word: &str) -> Self {
        let cell = Self::from(word);
        match word {
            "completed" | "applied" | "running" | "equal" | "yes" | "retry_safe" => cell.good(),
            "failed" | "refused" | "stopped" | "unequal" | "no" | "error" => cell.bad(),
            "pending" | "reconcile_required" | "repeat" | "warning" | "cancelled" | "unknown" => cell.warn(),
            _ => cell,
        }
    }

    /// Cut behind `width` characters.
    pub(crate) fn clip(mut self, width: usize) -> Self {
        if let Some((at, _)) = self.text.char_indices().nth(width) {
            self.text.truncate(at);
            self.text.push('…');
        }
        self
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Replaces what a terminal would act on: control characters, and those that turn the direction of text around.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Text in the making.
#[derive(Debug)]
pub(crate) struct Text {
    out: String,
    colours: bool,
}

impl Text {
    pub(crate) fn new(colours: bool) -> Self {
        Self { out: String::new(), colours }
    }

    pub(crate) fn into_string(self) -> String {
        self.out
    }

    /// Cells with a space between them.
    pub(crate) fn line<const N: usize>(&mut self, cells: [Cell; N]) {
        self.row(&cells.map(|cell| (0, cell)), " ");
    }

    /// Cells of a table that is printed row by row: each is as wide as it says, or wider.
    pub(crate) fn columns<const N: usize>(&mut self, cells: [(usize, Cell); N]) {
        self.row(&cells, "  ");
    }

    /// Names and values, one pair a line.
    pub(crate) fn facts<const N: usize>(&mut self, facts: [(&str, Cell); N]) {
        let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in facts {
            self.row(&[(width, Cell::from(name).dim()), (0, Cell { right: false, ..value })], "  ");
        }
    }

    /// A title for what follows.
    pub(crate) fn title(&mut self, title: String) {
        self.out.push('\n');
        self.line([Cell::from(title).strong()]);
    }

    /// A table with its head; says `none` where it has no rows.
    pub(crate) fn table<const N: usize>(&mut self, heads: [&str; N], rows: Vec<[Cell; N]>, none: &str) {
        if rows.is_empty() {
            self.line([Cell::from(none).dim()]);
            return;
        }
        let mut widths = heads.map(|head| head.chars().count());
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.width().max(*width);
            }
        }
        let first = rows[0].each_ref().map(|cell| cell.right);
        let mut index = 0;
        let head = heads.map(|head| {
            index += 1;
            Cell { right: first[index - 1], ..Cell::from(head).dim() }
        });
        for row in std::iter::once(head).chain(rows) {
            let mut widths = widths.iter();
            self.row(&row.map(|cell| (widths.next().copied().unwrap_or(0), cell)), "  ");
        }
    }

    /// An error: its kind and what it says.
    pub(crate) fn error(&mut self, kind: &str, message: &str) {
        self.line([Cell::from(format!("error ({kind}):")).bad(), Cell::from(message)]);
    }

    fn row(&mut self, cells: &[(usize, Cell)], gap: &str) {
        for (index, (width, cell)) in cells.iter().enumerate() {
            let padding = width.saturating_sub(cell.width());
            if index > 0 {
                self.out.push_str(gap);
            }
            if cell.right {
                self.pad(padding);
            }
            self.paint(cell);
            if !cell.right && index + 1 < cells.len() {
                self.pad(padding);
            }
        }
        self.out.push('\n');
    }

    fn pad(&mut self, width: usize) {
        self.out.extend(std::iter::repeat_n(' ', width));
    }

    fn paint(&mut self, cell: &Cell) {
        match cell.tone.rendition().filter(|_| self.colours) {
            // Writing to a String cannot fail.
            Some(rendition) => drop(write!(self.out, "\x1b[{rendition}m{}\x1b[0m", cell.text)),
            None => self.out.push_str(&cell.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_stand_at_the_right() {
        let mut text = Text::new(false);
        let rows = vec![["a".into(), 5u64.into(), "x".into()], ["bcd".into(), 1234u64.into(), Cell::from(None::<u64>)]];
        text.table(["RUN", "N", "WHAT"], rows, "none");
        assert_eq!(text.into_string(), "RUN     N  WHAT\na       5  x\nbcd  1234  -\n");
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let table = |colours| {
            let mut text = Text::new(colours);
            text.table(["A", "B"], vec![[Cell::word("failed"), "x".into()], [Cell::word("open"), "y".into()]], "none");
            text.into_string()
        };
        let plain = table(true).replace("\x1b[31m", "").replace("\x1b[2m", "").replace("\x1b[0m", "");
        assert_eq!(plain, table(false));
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_gets_through() {
        let mut text = Text::new(false);
        text.line(["a\x1b[2J\r\nb\u{202e}c\u{9b}".into()]);
        assert_eq!(text.into_string(), "a\\u{1b}[2J\\r\\nb\\u{202e}c\\u{9b}\n");
    }

    #[test]
    fn a_long_cell_is_cut_at_a_character() {
        assert_eq!(Cell::from("größer").clip(3).text, "grö…");
        assert_eq!(Cell::from("größer").clip(6).text, "größer");
    }
}
