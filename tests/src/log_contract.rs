//! The contract that every adapter of [`Log`] passes: one function per claim, each on a fresh log of [`PARTITIONS`].
//!
//! `log_contract!(factory)` makes a test of each claim for one adapter.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use runlog_log::{Bounds, Delivery, Entry, Error, Kind, Log, Offset, PartitionId, Reader};

pub mod appends;
pub mod crash;
pub mod ids;
pub mod reads;

/// The partitions of the factory's logs.
pub const PARTITIONS: u32 = 4;

/// How long an operation of a healthy log may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A test of each claim, for the adapter that `$factory: fn() -> (Arc<dyn Log>, impl Any)` makes. The second value is
/// kept until the test ends.
#[macro_export]
macro_rules! log_contract {
    ($factory:path) => {
        $crate::log_contract!($factory, appends:
            records_come_back_in_the_order_of_their_appends,
            keys_values_headers_and_timestamps_are_carried,
            the_largest_record_is_accepted,
            an_oversized_record_refuses_its_whole_batch_and_the_log_continues,
            records_that_kafka_cannot_carry_are_refused,
            an_unknown_partition_is_refused,
            an_empty_batch_is_no_append,
            concurrent_appenders_keep_their_order_in_each_partition,
            a_dropped_append_is_still_appended,
        );
        $crate::log_contract!($factory, reads:
            reading_starts_anywhere_between_the_bounds,
            a_read_beyond_the_bounds_is_out_of_range,
            bounds_cover_acknowledged_records,
            many_ask_for_bounds_at_once,
            a_waiting_reader_is_woken_by_an_append,
            an_idle_poll_ends_with_its_timeout,
            a_poll_returns_at_most_its_limit,
            one_reader_serves_several_partitions,
            positions_follow_the_deliveries_up_to_the_end,
            a_partition_is_read_from_the_sought_offset,
            a_seek_can_add_a_partition,
            a_released_partition_is_not_read_any_more,
            readers_do_not_disturb_each_other,
        );
    };
    ($factory:path, $module:ident: $($claim:ident,)*) => {
        $(
            #[test]
            fn $claim() {
                let (log, _kept) = $factory();
                $crate::log_contract::$module::$claim(&log);
            }
        )*
    };
}

/// Waits for a future on a new runtime.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(future)
}

/// A record with this value.
pub fn entry(value: impl Into<Vec<u8>>) -> Entry {
    Entry { key: b"run".to_vec(), value: value.into(), headers: Vec::new() }
}

/// Appends one record per value as one batch, and waits.
pub fn append(log: &Arc<dyn Log>, partition: impl Into<PartitionId>, values: &[&str]) -> Result<Vec<Offset>, Error> {
    wait(log.append(partition.into(), values.iter().map(|value| entry(*value)).collect()))
}

/// A partition's bounds.
pub fn bounds(log: &Arc<dyn Log>, partition: impl Into<PartitionId>) -> Bounds {
    wait(log.bounds(partition.into(), PATIENCE)).expect("the log returns its bounds")
}

/// A reader from these positions.
pub fn reader<P, O>(log: &Arc<dyn Log>, from: &[(P, O)]) -> Box<dyn Reader>
where
    P: Into<PartitionId> + Copy,
    O: Into<Offset> + Copy,
{
    log.reader(&from.iter().copied().map(log_position).collect::<Vec<_>>()).expect("the log gives a reader")
}

/// A partition and an offset in the log's types.
pub fn log_position((partition, offset): (impl Into<PartitionId>, impl Into<Offset>)) -> (PartitionId, Offset) {
    (partition.into(), offset.into())
}

/// Polls until there are `count` records.
pub fn read(reader: &mut Box<dyn Reader>, count: usize) -> Vec<Delivery> {
    let started = Instant::now();
    let mut records = Vec::new();
    while records.len() < count {
        let left = PATIENCE.checked_sub(started.elapsed());
        let left = left.unwrap_or_else(|| panic!("only {} of {count} records were delivered", records.len()));
        records.extend(reader.poll(count - records.len(), left).expect("the reader reads"));
    }
    records
}

/// Polls until a partition's position reaches `end`, and returns the records of all partitions.
pub fn read_up_to(reader: &mut Box<dyn Reader>, partition: impl Into<PartitionId>, end: Offset) -> Vec<Delivery> {
    let partition = partition.into();
    let started = Instant::now();
    let mut records = Vec::new();
    while reader.position(partition) < Some(end) {
        let left = PATIENCE.checked_sub(started.elapsed());
        let left =
            left.unwrap_or_else(|| panic!("the position stays at {:?}, before {end}", reader.position(partition)));
        match reader.poll(1000, left.min(Duration::from_secs(1))) {
            Ok(more) => records.extend(more),
            Err(error) => assert_eq!(error.kind(), Kind::Retry, "{error:?}"),
        }
    }
    assert_eq!(reader.position(partition), Some(end));
    records
}

/// Asserts that the reader has no more records.
pub fn assert_drained(reader: &mut Box<dyn Reader>) {
    assert_eq!(reader.poll(1, Duration::from_millis(300)).expect("the reader reads"), []);
}

/// The values, as text.
pub fn texts(records: &[Delivery]) -> Vec<String> {
    records.iter().map(|record| String::from_utf8_lossy(&record.value).into_owned()).collect()
}

/// The kind of the error; panics if there is none.
pub fn kind<T>(result: Result<T, Error>) -> Kind {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.kind(),
    }
}
