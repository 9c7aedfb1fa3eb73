//! The queries of a product under test: over rows in this process, or over HTTP.

use anyhow::ensure;
use runlog_projector::index::{
    query::{effects::Listed, events::Filter},
    store::Index,
};
use runlog_schemas::id::{RecordId, RunId};
use serde_json::Value;

/// The largest number of pages of one answer.
pub(crate) const PAGES_MAX: usize = 10_000;

/// The answers as JSON. Lists are complete: they are read in pages of `limit` items.
pub trait Answers {
    /// The page limit of the `number`th question: 1 to 5 items, so that pages end at many places.
    fn page(&self, number: u64) -> usize {
        usize::try_from(number % 5).unwrap_or(0) + 1
    }

    /// The position of each partition; `applied` is null if it must not be compared.
    fn partitions(&self) -> anyhow::Result<Value>;

    /// Every run, by id.
    fn runs(&self, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// `recover --full`; null if the run does not exist.
    fn recover(&self, run_id: RunId<&str>, limit: usize) -> anyhow::Result<Value>;

    /// `lookup`.
    fn lookup(&self, run_id: RunId<&str>, fingerprint: &str, occurrence: Option<u32>) -> anyhow::Result<Value>;

    /// `checkpoint` with its messages; null if there is none.
    fn checkpoint(&self, run_id: RunId<&str>, at_or_before: Option<u64>) -> anyhow::Result<Value>;

    /// `show --raw`.
    fn show(&self, run_id: RunId<&str>, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// `events`: over all runs.
    fn events(&self, filter: &Filter, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// The facts of a run that are valid at a time.
    fn facts(&self, run_id: RunId<&str>, at_millis: i64, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// `show --raw --as-of` a time.
    fn show_at(&self, run_id: RunId<&str>, at_millis: i64, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// The open or ended items of one run.
    fn open_items(&self, run_id: RunId<&str>, index: Index, ended: bool, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// The open or ended items of all runs, each with its run.
    fn open_items_everywhere(&self, index: Index, ended: bool, limit: usize) -> anyhow::Result<Vec<(RunId, Value)>>;

    /// `effects`: over all runs.
    fn effects(&self, listed: Listed, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// `anomalies`, of a run or all.
    fn anomalies(&self, run_id: Option<RunId<&str>>, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// `dead-letter list`.
    fn dead_letters(&self, limit: usize) -> anyhow::Result<Vec<Value>>;

    /// Whether [`Answers::outcome`] answers for positions of this partition.
    fn tells_outcomes(&self, partition: u32) -> bool;

    /// `outcome` of a run's record at a position; null if no record was judged there.
    fn outcome(
        &self,
        partition: u32,
        at: (u64, u32),
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
    ) -> anyhow::Result<Value>;

    /// The outcome of the first record with an id; null if no record was judged.
    fn by_id(&self, run_id: RunId<&str>, record_id: RecordId<&str>) -> anyhow::Result<Value>;
}

/// The lists of a recovery whose items share the limit of a page.
const PAGED: [&str; 5] = ["completed", "approvals", "wakes", "messages", "write_backs"];

/// Orders the pending effects of a recovery by their members. Pages are ordered by effect id, and effects within a page by request, so
/// effects with one `journal_seq` can be on different pages.
pub(crate) fn order_pending(recovery: &mut Value) {
    if let Some(pending) = recovery["pending"].as_array_mut() {
        let text = |effect: &Value, name: &str| effect[name].as_str().map(str::to_owned);
        pending.sort_by_key(|effect| (effect["journal_seq"].as_u64(), text(effect, "kind"), text(effect, "id")));
    }
}

/// Merges the pages of a recovery. `page` returns the page at a cursor; `None` if the run does not exist.
pub(crate) fn recovered(
    limit: usize,
    page: impl Fn(Option<&str>) -> anyhow::Result<Option<Value>>,
) -> anyhow::Result<Value> {
    let page = |cursor: Option<&str>| -> anyhow::Result<Option<Value>> {
        let Some(page) = page(cursor)? else { return Ok(None) };
        let length = |list: &Value| list.as_array().map_or(0, Vec::len);
        let items: usize = PAGED.iter().map(|list| length(&page[*list])).sum();
        // The limit does not count calls that the checkpoint names as unanswered.
        let max = limit + length(&page["checkpoint"]["unanswered"]);
        ensure!(items <= max, "{items} items on a page of at most {max}");
        Ok(Some(page))
    };
    let Some(mut whole) = page(None)? else { return Ok(Value::Null) };
    let mut next = whole["next_cursor"].as_str().map(str::to_owned);
    for _ in 0..PAGES_MAX {
        let Some(cursor) = next else {
            order_pending(&mut whole);
            return Ok(whole);
        };
        let Some(more) = page(Some(&cursor))? else { anyhow::bail!("the run is missing on a later page") };
        next = more["next_cursor"].as_str().map(str::to_owned);
        ensure!(next.as_ref() != Some(&cursor), "the next page is the same page");
        for list in PAGED.into_iter().chain(["pending", "missing_content"]) {
            let items = more[list].as_array().cloned().unwrap_or_default();
            if let Some(all) = whole[list].as_array_mut() {
                all.extend(items);
            }
        }
        let unclaimed = whole["unclaimed"].as_u64().unwrap_or(0) + more["unclaimed"].as_u64().unwrap_or(0);
        whole["unclaimed"] = unclaimed.into();
        ensure!(more["reason"] == whole["reason"], "the reason why the run is not resumable differs between pages");
    }
    anyhow::bail!("more than {PAGES_MAX} pages")
}
