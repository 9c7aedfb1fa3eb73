//! Text for people: aligned, coloured on request, and without the control characters that an agent or a tool may write.

use comfy_table::{Attribute, CellAlignment, Color, ContentArrangement, Table, presets};
use runlog_schemas::{
    hidden::is_hidden,
    id::{Epoch, Fingerprint, JournalSeq, Offset, OrEmpty, PartitionId, RecordId, RunId, WriterId, WriterSeq},
};
use std::{borrow::Cow, fmt::Write as _};

/// The meaning of a cell's colour.
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

impl From<Cell> for comfy_table::Cell {
    fn from(cell: Cell) -> Self {
        let shown = Self::new(cell.text);
        let shown = if cell.right { shown.set_alignment(CellAlignment::Right) } else { shown };
        match cell.tone {
            Tone::Plain => shown,
            Tone::Good => shown.fg(Color::DarkGreen),
            Tone::Bad => shown.fg(Color::DarkRed),
            Tone::Warn => shown.fg(Color::DarkYellow),
            Tone::Dim => shown.add_attribute(Attribute::Dim),
            Tone::Strong => shown.add_attribute(Attribute::Bold),
        }
    }
}

/// A piece of text with its tone. Numbers are aligned right.
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

/// Shows a missing value as a dash.
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

    /// Aligns the cell right, like a number.
    pub(crate) fn right(self) -> Self {
        Self { right: true, ..self }
    }

    /// Creates a cell with a status word in its colour.
    pub(crate) fn status(word: &str) -> Self {
        let cell = Self::from(word);
        match word {
            "completed" | "applied" | "running" | "equal" | "yes" | "retry_safe" => cell.good(),
            "failed" | "refused" | "stopped" | "unequal" | "no" | "error" => cell.bad(),
            "pending" | "reconcile_required" | "repeat" | "warning" | "cancelled" | "unknown" => cell.warn(),
            _ => cell,
        }
    }

    /// Shortens the text to `width` characters by omitting the middle, because ids differ at both ends.
    pub(crate) fn shorten(self, width: usize) -> Self {
        let chars: Vec<char> = self.text.chars().collect();
        if chars.len() <= width || width == 0 {
            return self;
        }
        let (head, tail) = ((width - 1).div_ceil(2), (width - 1) / 2);
        let text = chars[..head].iter().chain(['…'].iter()).chain(&chars[chars.len() - tail..]).collect();
        Self { text, ..self }
    }

    /// Truncates the text after `width` characters.
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

/// Escapes characters that a terminal acts on or that a person cannot see.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden, |c, out| out.extend(c.escape_default()))
}

/// Escapes the same characters in a line of text, except ASCII's control characters. So line ends and colours stay.
pub(crate) fn clean_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c >= ' ' && is_hidden(c), |c, out| out.extend(c.escape_default()))
}

/// Escapes the same characters in a JSON text without changing its meaning. JSON has ASCII's control characters between values
/// only.
pub(crate) fn clean_json(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| c >= ' ' && is_hidden(c),
        |c, out| {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        },
    )
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) { escape(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Text under construction.
#[derive(Debug)]
pub(crate) struct Text {
    out: String,
    colours: bool,
    /// Width at which tables wrap, characters.
    width: Option<u16>,
}

impl Text {
    pub(crate) fn new(colours: bool) -> Self {
        Self { out: String::new(), colours, width: None }
    }

    /// Sets the width at which tables wrap, characters.
    pub(crate) fn wrapped_at(self, width: Option<u16>) -> Self {
        Self { width, ..self }
    }

    pub(crate) fn into_string(self) -> String {
        self.out
    }

    /// Adds a line of cells with a space between them.
    pub(crate) fn line<const N: usize>(&mut self, cells: [Cell; N]) {
        self.row(&cells.map(|cell| (0, cell)), " ");
    }

    /// Adds a row of a table that is printed row by row. Each cell has at least the given width.
    pub(crate) fn columns<const N: usize>(&mut self, cells: [(usize, Cell); N]) {
        self.row(&cells, "  ");
    }

    /// Adds names and values, one pair a line.
    pub(crate) fn facts<'a>(&mut self, facts: impl IntoIterator<Item = (&'a str, Cell)>) {
        let facts: Vec<_> = facts.into_iter().collect();
        let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in facts {
            self.row(&[(width, Cell::from(name).dim()), (0, Cell { right: false, ..value })], "  ");
        }
    }

    /// Adds a title.
    pub(crate) fn title(&mut self, title: String) {
        self.out.push('\n');
        self.line([Cell::from(title).strong()]);
    }

    /// Begins a list of `rows`, or the text `none` without rows.
    pub(crate) fn list<'r, R>(&mut self, rows: &'r [R], none: &'r str) -> List<'_, 'r, R> {
        List { text: self, rows, none, columns: Vec::new() }
    }

    /// Adds an error: its kind and its message.
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

/// A list under construction: a table with a head.
#[derive(Debug)]
pub(crate) struct List<'t, 'r, R> {
    text: &'t mut Text,
    rows: &'r [R],
    none: &'r str,
    /// The cells of each column, its head first.
    columns: Vec<Vec<Cell>>,
}

impl<'r, R> List<'_, 'r, R> {
    /// Adds a column. The first row decides whether it is aligned right.
    #[must_use]
    pub(crate) fn column<C: Into<Cell>>(mut self, head: &str, cell: impl Fn(&'r R) -> C) -> Self {
        let cells: Vec<Cell> = self.rows.iter().map(|row| cell(row).into()).collect();
        let right = cells.first().is_some_and(|first| first.right);
        let head = Cell { right, ..Cell::from(head).dim() };
        self.columns.push(std::iter::once(head).chain(cells).collect());
        self
    }

    /// Prints the list. It wraps at the width of the text, if one is set.
    pub(crate) fn print(self) {
        let Self { text, rows, none, columns } = self;
        if rows.is_empty() {
            text.line([Cell::from(none).dim()]);
            return;
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if text.colours {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        table.set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = text.width {
            table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        }
        let row = |index: usize| columns.iter().map(move |cells| comfy_table::Cell::from(cells[index].clone()));
        table.set_header(row(0));
        table.add_rows((1..=rows.len()).map(row));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for line in table.lines() {
            text.out.push_str(line.trim_end());
            text.out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_stand_at_the_right() {
        let mut text = Text::new(false);
        let rows = [("a", 5u64, Some("x")), ("bcd", 1234, None)];
        text.list(&rows, "none")
            .column("RUN", |row| row.0)
            .column("N", |row| row.1)
            .column("WHAT", |row| row.2)
            .print();
        text.list(&rows[..0], "none").column("RUN", |row| row.0).print();
        assert_eq!(text.into_string(), "RUN     N  WHAT\na       5  x\nbcd  1234  -\nnone\n");
    }

    #[test]
    fn a_long_id_keeps_both_ends_and_a_terminal_wraps_the_rest() {
        let id = format!("{}end", "x".repeat(300));
        let short = Cell::from(&id).shorten(20);
        assert_eq!((short.width(), short.text.ends_with("…xxxxxxend")), (20, true), "{short:?}");
        assert_eq!(Cell::from("short").shorten(20).text, "short");
        let mut text = Text::new(false).wrapped_at(Some(80));
        text.list(&[&id], "none").column("RUN", |id| *id).column("N", |_| 5u64).print();
        assert!(text.out.lines().all(|line| line.chars().count() <= 80), "{}", text.out);
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let table = |colours| {
            let mut text = Text::new(colours);
            let rows = [("failed", "x"), ("open", "y")];
            text.list(&rows, "none").column("A", |row| Cell::status(row.0)).column("B", |row| row.1).print();
            text.into_string()
        };
        let coloured = table(true);
        let mut parts = coloured.split('\x1b');
        let first = parts.next().unwrap_or_default().to_owned();
        let plain = parts.fold(first, |plain, part| plain + part.split_once('m').unwrap().1);
        assert!(plain != coloured);
        assert!(plain.lines().map(str::trim_end).eq(table(false).lines()), "{plain}");
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_gets_through() {
        let mut text = Text::new(false);
        text.line(["a\x1b[2J\r\nb\u{202e}c\u{9b}".into()]);
        assert_eq!(text.into_string(), "a\\u{1b}[2J\\r\\nb\\u{202e}c\\u{9b}\n");
    }

    #[test]
    fn no_two_texts_look_the_same_by_a_character_without_ink() {
        for hidden in
            ['\u{ad}', '\u{200b}', '\u{200f}', '\u{61c}', '\u{feff}', '\u{2060}', '\u{3164}', '\u{fe0f}', '\u{e0041}']
        {
            let id = format!("pay{hidden}ment ä 決");
            assert_eq!(clean(&id), format!("pay{}ment ä 決", hidden.escape_default()));
            assert_eq!(clean_line(&format!("\x1b[1m{id}\n")), format!("\x1b[1m{}\n", clean(&id)));
            let json = serde_json::json!({ "id": format!("{id}\u{9b}\u{7f}\n") });
            let line = clean_json(&json.to_string()).into_owned();
            assert!(!line.contains(is_hidden), "{line}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), json);
        }
    }

    #[test]
    fn a_long_cell_is_cut_at_a_character() {
        assert_eq!(Cell::from("größer").clip(3).text, "grö…");
        assert_eq!(Cell::from("größer").clip(6).text, "größer");
    }
}
