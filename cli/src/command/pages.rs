//! Lists: read from the server page by page, and printed as tables.

use crate::{
    args::{PageOptions, ReadOptions},
    client::Target,
    error::Error,
    session::Session,
    text::{Cell, Text},
};
use runlog_schemas::{
    answer::{Anomalies, DeadLetters, Effects, Horizons, Runs},
    id::PartitionId,
    shell,
};
use serde::de::DeserializeOwned;

/// Entries per request.
const PAGE: u64 = 1000;

/// A part of a list, as the server answers it.
pub(super) trait Page {
    fn count(&self) -> usize;

    fn next_cursor(&self) -> Option<&str>;

    /// The stopped partitions. The list lacks the records that they did not apply.
    fn unavailable(&self) -> &[PartitionId];

    /// Appends the next page.
    fn join(&mut self, next: Self);
}

macro_rules! pages {
    ($($page:ident { $items:ident, $unavailable:ident })*) => {$(
        impl Page for $page {
            fn count(&self) -> usize {
                self.$items.len()
            }

            fn next_cursor(&self) -> Option<&str> {
                self.next_cursor.as_deref()
            }

            fn unavailable(&self) -> &[PartitionId] {
                &self.$unavailable
            }

            fn join(&mut self, next: Self) {
                self.$items.extend(next.$items);
                self.next_cursor = next.next_cursor;
                self.$unavailable.extend(next.$unavailable);
                self.$unavailable.sort_unstable();
                self.$unavailable.dedup();
            }
        }
    )*};
}
pages! {
    Anomalies { anomalies, unavailable_partitions }
    DeadLetters { records, unavailable_partitions }
    Effects { effects, unavailable_partitions }
    Horizons { horizons, unavailable_partitions }
    Runs { runs, unavailable_partitions }
}

/// Gets the part of the list at `target` that the user requested.
pub(super) async fn get<P: Page + DeserializeOwned>(
    session: &Session,
    target: Target,
    page: &PageOptions,
    reading: &ReadOptions,
) -> Result<P, Error> {
    gather(page.limit, page.cursor.clone(), async |limit, cursor| {
        session.read(target.clone().with("limit", limit).with_some("cursor", cursor), reading).await
    })
    .await
}

/// Gets pages until there are `limit` items, or all pages without a limit. `ask` gets a limit and a cursor.
async fn gather<P: Page>(
    limit: Option<u64>,
    mut cursor: Option<String>,
    mut ask: impl AsyncFnMut(u64, Option<&str>) -> Result<P, Error>,
) -> Result<P, Error> {
    let wanted = |count: usize| limit.map_or(PAGE, |limit| limit.saturating_sub(count as u64).min(PAGE));
    let mut list = ask(wanted(0), cursor.as_deref()).await?;
    loop {
        let next = list.next_cursor().map(str::to_owned);
        let left = wanted(list.count());
        // A cursor that does not advance would loop for ever.
        if left == 0 || next.is_none() || next == cursor {
            return Ok(list);
        }
        list.join(ask(left, next.as_deref()).await?);
        cursor = next;
    }
}

/// Prints the partitions that a list lacks, and the flag that continues it.
pub(super) fn print_rest(list: &impl Page, text: &mut Text) {
    if !list.unavailable().is_empty() {
        let partitions: Vec<String> = list.unavailable().iter().map(PartitionId::to_string).collect();
        let missing = format!("incomplete: partitions {} are stopped; `runlog doctor` says why", partitions.join(", "));
        text.line([Cell::from(missing).warn()]);
    }
    if let Some(cursor) = list.next_cursor() {
        text.line([Cell::from(format!("more: {}", shell::flag("--cursor", cursor))).dim()]);
    }
}

/// Visits all pages. `page` gets a cursor, handles that page, and returns the cursor of the next page.
pub(super) async fn visit_pages(
    mut page: impl AsyncFnMut(Option<&str>) -> Result<Option<String>, Error>,
) -> Result<(), Error> {
    let mut cursor: Option<String> = None;
    loop {
        let next = page(cursor.as_deref()).await?;
        // A cursor that does not advance would loop for ever.
        if next.is_none() || next == cursor {
            return Ok(());
        }
        cursor = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers {
        numbers: Vec<u64>,
        stopped: Vec<PartitionId>,
        next_cursor: Option<String>,
    }
    pages! { Numbers { numbers, stopped } }

    /// Serves 0..2500 by cursor, at most 1000 at once.
    async fn part(limit: Option<u64>, cursor: Option<&str>) -> (usize, Option<String>, usize) {
        let mut requests = 0;
        let list = gather(limit, cursor.map(str::to_owned), async |count, cursor: Option<&str>| {
            requests += 1;
            let from = cursor.map_or(0, |cursor| cursor.parse::<u64>().unwrap());
            let to = (from + count.min(1000)).min(2500);
            let next_cursor = (to < 2500).then(|| to.to_string());
            Ok(Numbers { numbers: (from..to).collect(), stopped: vec![2.into(), 1.into()], next_cursor })
        })
        .await
        .unwrap();
        let first = cursor.map_or(0, |cursor| cursor.parse().unwrap());
        assert!(list.numbers.iter().copied().eq(first..first + list.numbers.len() as u64));
        assert!(requests == 1 || list.stopped == [1.into(), 2.into()]);
        (list.numbers.len(), list.next_cursor, requests)
    }

    #[tokio::test]
    async fn without_a_limit_all_pages_are_gathered() {
        assert_eq!(part(None, None).await, (2500, None, 3));
        assert_eq!(part(None, Some("2000")).await, (500, None, 1));
    }

    #[tokio::test]
    async fn a_limit_is_kept_and_a_cursor_continues_the_list() {
        assert_eq!(part(Some(100), None).await, (100, Some("100".into()), 1));
        assert_eq!(part(Some(1500), Some("100")).await, (1500, Some("1600".into()), 2));
        assert_eq!(part(Some(9999), None).await, (2500, None, 3));
    }
}
