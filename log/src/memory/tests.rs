use super::*;
use crate::Bounds;

const ZERO: PartitionId = PartitionId::ZERO;

fn entry(value: &str) -> Entry {
    Entry { value: value.into(), ..Entry::default() }
}

fn append(log: &MemoryLog, values: &[&str]) -> Result<Vec<u64>, Error> {
    let ack = log.append(ZERO, values.iter().map(|value| entry(value)).collect());
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(ack).map(numbers)
}

fn numbers(offsets: Vec<Offset>) -> Vec<u64> {
    offsets.into_iter().map(Offset::get).collect()
}

fn poll(reader: &mut Box<dyn Reader>) -> Vec<u64> {
    numbers(reader.poll(100, Duration::ZERO).unwrap().iter().map(|record| record.offset).collect())
}

#[test]
fn gaps_are_left_between_offsets_and_stepped_over_at_the_end() {
    let log = MemoryLog::with(MemoryOptions { gaps: Some(Gaps { every: 2, width: 3 }), ..MemoryOptions::default() });
    assert_eq!(append(&log, &["a", "b", "c", "d"]).unwrap(), [0, 1, 5, 6]);
    let mut reader = log.reader(&[(ZERO, Offset::ZERO)]).unwrap();
    assert_eq!(poll(&mut reader), [0, 1, 5, 6]);
    assert_eq!(reader.position(ZERO), Some(10.into()));
    assert_eq!(log.0.bounds(ZERO).unwrap(), Bounds { start: Offset::ZERO, end: 10.into() });
}

#[test]
fn repeats_deliver_again_without_moving_the_position_back() {
    let repeats = Some(Repeats { every: 2, back: 2 });
    let log = MemoryLog::with(MemoryOptions { repeats, ..MemoryOptions::default() });
    append(&log, &["a", "b", "c"]).unwrap();
    let mut reader = log.reader(&[(ZERO, Offset::ZERO)]).unwrap();
    assert_eq!(poll(&mut reader), [0, 1, 0, 1, 2]);
    assert_eq!(reader.position(ZERO), Some(3.into()));
}

#[test]
fn a_reader_below_a_moved_start_is_out_of_range_until_it_seeks() {
    let log = MemoryLog::new(1);
    append(&log, &["a", "b", "c"]).unwrap();
    let mut reader = log.reader(&[(ZERO, Offset::ZERO)]).unwrap();
    log.truncate_before(ZERO, 2.into());
    let error = reader.poll(1, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), Kind::OutOfRange);
    assert_eq!(log.reader(&[(ZERO, 1.into())]).err().unwrap().kind(), Kind::OutOfRange);
    reader.seek(ZERO, 2.into()).unwrap();
    assert_eq!(poll(&mut reader), [2]);
}

#[test]
fn held_records_move_the_bounds_and_are_delivered_on_release() {
    let log = MemoryLog::with(MemoryOptions { held: true, ..MemoryOptions::default() });
    append(&log, &["a", "b"]).unwrap();
    let mut reader = log.reader(&[(ZERO, Offset::ZERO)]).unwrap();
    assert_eq!(log.0.bounds(ZERO).unwrap().end, 2.into());
    assert_eq!((poll(&mut reader), reader.position(ZERO)), (vec![], Some(Offset::ZERO)));
    log.release(ZERO);
    assert_eq!(poll(&mut reader), [0, 1]);
    log.hold(ZERO);
    append(&log, &["c"]).unwrap();
    assert_eq!((poll(&mut reader), reader.position(ZERO)), (vec![], Some(2.into())));
}

#[test]
fn an_injected_failure_hides_whether_it_landed_as_a_real_log_does() {
    let append_faults = vec![AppendFault::Refused(Kind::Retry), AppendFault::UnknownLost];
    let log = MemoryLog::with(MemoryOptions { append_faults, ..MemoryOptions::default() });
    log.fail_next(AppendFault::UnknownLanded);
    let kinds = ["refused", "lost", "landed"].map(|value| append(&log, &[value]).unwrap_err().kind());
    assert_eq!(kinds, [Kind::Retry, Kind::Unknown, Kind::Unknown]);
    assert_eq!(append(&log, &["after"]).unwrap(), [1]);
    let records = log.reader(&[(ZERO, Offset::ZERO)]).unwrap().poll(9, Duration::ZERO).unwrap();
    assert_eq!(records.iter().map(|record| &record.value[..]).collect::<Vec<_>>(), [&b"landed"[..], b"after"]);
}
