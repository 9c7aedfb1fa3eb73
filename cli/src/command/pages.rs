//! Lists longer than a page.

use crate::Error;

/// Entries per request.
const PAGE: u64 = 1000;

/// Part of a list, and the cursor of the next part.
pub(super) type Part<T> = (Vec<T>, Option<String>);

/// Gets pages until there are `limit` items, or all pages without a limit. `ask` gets a limit and a cursor.
pub(super) async fn gather<T>(
    limit: Option<u64>,
    mut cursor: Option<String>,
    mut ask: impl AsyncFnMut(u64, Option<&str>) -> Result<Part<T>, Error>,
) -> Result<Part<T>, Error> {
    let mut items = Vec::new();
    loop {
        let remaining = limit.map_or(PAGE, |limit| limit.saturating_sub(items.len() as u64).min(PAGE));
        let (page, next) = ask(remaining, cursor.as_deref()).await?;
        items.extend(page);
        let full = limit.is_some_and(|limit| items.len() as u64 >= limit);
        // A cursor that does not advance would loop for ever.
        if full || next.is_none() || next == cursor {
            return Ok((items, next));
        }
        cursor = next;
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

    /// Serves 0..2500 by cursor, at most 1000 at once.
    async fn part(limit: Option<u64>, cursor: Option<&str>) -> (usize, Option<String>, usize) {
        let mut requests = 0;
        let (items, next) = gather(limit, cursor.map(str::to_owned), async |count, cursor: Option<&str>| {
            requests += 1;
            let from = cursor.map_or(0, |cursor| cursor.parse::<u64>().unwrap());
            let to = (from + count.min(1000)).min(2500);
            Ok(((from..to).collect::<Vec<_>>(), (to < 2500).then(|| to.to_string())))
        })
        .await
        .unwrap();
        let first = cursor.map_or(0, |cursor| cursor.parse().unwrap());
        assert!(items.iter().copied().eq(first..first + items.len() as u64));
        (items.len(), next, requests)
    }

    #[tokio::test]
    async fn without_a_limit_all_pages_are_gathered() {
        assert_eq!(part(None, None).await, (2500, None, 3));
        assert_eq!(part(None, Some("2000")).await, (500, None, 1));
    }

    #[tokio::test]
    async fn a_limit_is_kept_and_the_rest_can_be_asked_for() {
        assert_eq!(part(Some(100), None).await, (100, Some("100".into()), 1));
        assert_eq!(part(Some(1500), Some("100")).await, (1500, Some("1600".into()), 2));
        assert_eq!(part(Some(9999), None).await, (2500, None, 3));
    }
}
