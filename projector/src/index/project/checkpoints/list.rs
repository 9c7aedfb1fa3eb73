//! Builds a list from parts of another list and from new messages. Shares the pages that do not change.
//!
//! Every page has from [`PAGE_RANGES`] / 2 to [`PAGE_RANGES`] ranges. A list of n ranges thus has at most 2n /
//! [`PAGE_RANGES`] pages, and an edit makes at most two or three new pages. The last ranges are in the list itself, so
//! a run that only appends makes no page.

use crate::index::{
    project::changes::Changes,
    store::{
        self, Rows,
        checkpoints::{ArrayRow, List, MessageRow, PageRef, Range, array, message, page},
    },
};
use runlog_schemas::id::RunId;

/// The maximum number of ranges of a page.
pub(super) const PAGE_RANGES: usize = 128;

/// A part of a list: a whole page, or consecutive messages of the array.
enum Part {
    Page(PageRef),
    Range(Range),
}

/// Bytes of `count` messages of a list, from index `from`.
pub(in crate::index::project) fn bytes_of<R: Rows>(
    changes: &Changes<'_, R>,
    run_id: RunId<&str>,
    list: &List,
    from: u64,
    count: u64,
) -> Result<u64, store::Error> {
    if (from, count) == (0, list.messages) {
        return Ok(list.bytes);
    }
    let mut bytes = 0;
    slice(changes, run_id, list, from, count, &mut |part| {
        bytes += match part {
            Part::Page(page) => page.bytes,
            Part::Range(range) => range.bytes,
        };
    })?;
    Ok(bytes)
}

/// Visits the parts of `count` messages of `list`, from index `from`. One step per page of the list, and the rows of the
/// pages at both ends.
fn slice<R: Rows>(
    changes: &Changes<'_, R>,
    run_id: RunId<&str>,
    list: &List,
    from: u64,
    count: u64,
    visit: &mut dyn FnMut(Part),
) -> Result<(), store::Error> {
    let end = from + count;
    let mut start = 0;
    for page in &list.pages {
        let stop = start + page.messages;
        if from <= start && stop <= end {
            visit(Part::Page(*page));
        } else if from < stop && start < end {
            cut(changes, run_id, &ranges(changes, run_id, page)?, (start, from, end), visit)?;
        }
        start = stop;
    }
    cut(changes, run_id, &list.tail, (start, from, end), visit)
}

/// Visits the parts of `ranges` between the indices `from` and `end`. The first range is at index `start` of the list.
fn cut<R: Rows>(
    changes: &Changes<'_, R>,
    run_id: RunId<&str>,
    ranges: &[Range],
    (mut start, from, end): (u64, u64, u64),
    visit: &mut dyn FnMut(Part),
) -> Result<(), store::Error> {
    for range in ranges {
        let skipped = from.saturating_sub(start).min(range.count);
        let count = end.saturating_sub(start).min(range.count).saturating_sub(skipped);
        start += range.count;
        if count == range.count {
            visit(Part::Range(*range));
        } else if count > 0 {
            let first = range.from + skipped;
            let bytes = before(changes, run_id, first + count)? - before(changes, run_id, first)?;
            visit(Part::Range(Range { from: first, count, bytes }));
        }
    }
    Ok(())
}

/// Bytes of the array's messages before the message with a number.
fn before<R: Rows>(changes: &Changes<'_, R>, run_id: RunId<&str>, number: u64) -> Result<u64, store::Error> {
    match changes.get::<MessageRow>(&message(run_id, number))? {
        Some(row) => Ok(row.bytes_before),
        // No message has this number yet: counts all messages.
        None => Ok(changes.get::<ArrayRow>(&array(run_id))?.unwrap_or_default().bytes),
    }
}

fn ranges<R: Rows>(changes: &Changes<'_, R>, run_id: RunId<&str>, at: &PageRef) -> Result<Vec<Range>, store::Error> {
    Ok(changes.get(&page(run_id, at.page))?.unwrap_or_default())
}

/// Builds a list from its first message to its last.
pub(super) struct Maker<'m, 'c, R> {
    run_id: RunId<&'m str>,
    end: &'m mut ArrayRow,
    changes: &'m mut Changes<'c, R>,
    pages: Vec<PageRef>,
    /// The ranges after the last page.
    open: Vec<Range>,
}

impl<'m, 'c, R: Rows> Maker<'m, 'c, R> {
    pub(super) fn new(run_id: RunId<&'m str>, end: &'m mut ArrayRow, changes: &'m mut Changes<'c, R>) -> Self {
        Self { run_id, end, changes, pages: Vec::new(), open: Vec::new() }
    }

    /// Adds `count` messages of `base`, from index `from`.
    pub(super) fn keep(&mut self, base: &List, from: u64, count: u64) -> Result<(), store::Error> {
        let mut parts = Vec::new();
        slice(self.changes, self.run_id, base, from, count, &mut |part| parts.push(part))?;
        for part in parts {
            match part {
                Part::Range(range) => self.add(range),
                Part::Page(page) if self.open.is_empty() => self.pages.push(page),
                Part::Page(page) if self.open.len() >= PAGE_RANGES / 2 => {
                    self.close();
                    self.pages.push(page);
                }
                // The open ranges are too few for a page, so this page's ranges are added to them.
                Part::Page(page) => {
                    ranges(self.changes, self.run_id, &page)?.into_iter().for_each(|range| self.add(range));
                }
            }
        }
        Ok(())
    }

    /// Adds consecutive messages of the array.
    pub(super) fn add(&mut self, range: Range) {
        match self.open.last_mut() {
            Some(last) if last.from + last.count == range.from => {
                last.count += range.count;
                last.bytes += range.bytes;
            }
            _ => self.open.push(range),
        }
    }

    /// Makes pages of all open ranges, of about equal size.
    fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        let each = open.len().div_ceil(open.len().div_ceil(PAGE_RANGES));
        open.chunks(each).for_each(|ranges| self.put(ranges));
    }

    fn put(&mut self, ranges: &[Range]) {
        let messages = ranges.iter().map(|range| range.count).sum();
        let bytes = ranges.iter().map(|range| range.bytes).sum();
        self.changes.put(page(self.run_id, self.end.pages), &ranges.to_vec());
        self.pages.push(PageRef { page: self.end.pages, messages, bytes });
        self.end.pages += 1;
    }

    pub(super) fn finish(mut self) -> List {
        while self.open.len() > PAGE_RANGES {
            let rest = self.open.split_off(PAGE_RANGES);
            let full = std::mem::replace(&mut self.open, rest);
            self.put(&full);
        }
        let Self { pages, open: tail, .. } = self;
        let parts = || {
            let of_pages = pages.iter().map(|page| (page.messages, page.bytes));
            of_pages.chain(tail.iter().map(|range| (range.count, range.bytes)))
        };
        let (messages, bytes) = parts().fold((0, 0), |(messages, bytes), part| (messages + part.0, bytes + part.1));
        List { messages, bytes, pages, tail }
    }
}
