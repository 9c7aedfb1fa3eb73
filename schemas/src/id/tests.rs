use super::*;
use crate::datum::{Datum, Input, put_bytes, put_long};

fn encoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_bytes(text.as_bytes(), &mut bytes);
    bytes
}

#[test]
fn an_illegal_id_is_refused_by_every_way_in() {
    let long = "ü".repeat(ID_BYTES_MAX / 2) + "x";
    for (text, said, malformed) in [
        ("", "a run id is not empty; give it one", "an empty run id"),
        (&long, "a run id has at most 1024 bytes; shorten it from 1025", "a run id over its limit"),
    ] {
        assert_eq!(RunId::new(text).unwrap_err().to_string(), said);
        assert_eq!(text.parse::<RunId>().unwrap_err().to_string(), said);
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(serde_json::from_str::<RunId>(&json).unwrap_err().to_string(), said);
        let bytes = encoded(text);
        assert_eq!(RunId::from_bytes(&bytes).unwrap_err().what, malformed);
        assert_eq!(<RunId as Datum>::skip(&mut Input::new(&bytes)).unwrap_err().what, malformed);
        assert_eq!(RunId::take_borrowed(&mut Input::new(&bytes)).unwrap_err().what, malformed);
        // An optional id is absent as the empty string. The limit holds for it too.
        assert_eq!(RunId::take_or_empty(&mut Input::new(&bytes)).is_ok(), text.is_empty());
        assert_eq!(OrEmpty::<RunId>::from_bytes(&bytes).is_ok(), text.is_empty());
        assert_eq!(serde_json::from_str::<OrEmpty<RunId>>(&json).is_ok(), text.is_empty());
    }
    assert!(RunId::new(&long[..ID_BYTES_MAX]).is_ok());
    let host = "f".repeat(FINGERPRINT_BYTES_MAX);
    assert!(Fingerprint::new(host.as_str()).is_ok() && Fingerprint::new(host + "f").is_err());
}

#[test]
fn an_id_is_written_as_its_text() {
    let id = RecordId::new("r\u{0}ü").unwrap();
    assert_eq!(id.to_owned().to_bytes(), encoded(id.as_str()));
    assert_eq!(serde_json::to_string(&id).unwrap(), serde_json::to_string(id.as_str()).unwrap());
    assert_eq!((format!("{id}"), format!("{id:?}")), (id.as_str().to_owned(), format!("{:?}", id.as_str())));
    let none = OrEmpty::<RecordId>::NONE;
    assert_eq!((none.to_bytes(), serde_json::to_string(&none).unwrap()), (encoded(""), "\"\"".to_owned()));
}

#[test]
fn an_illegal_number_is_refused_by_every_way_in() {
    let max = i64::MAX.cast_unsigned();
    assert_eq!((Offset::MAX.get(), Offset::MAX.next()), (max, None));
    let message = "offset must be at most 9223372036854775807, the schema's maximum, not 9223372036854775808";
    assert_eq!(Offset::new(max + 1).unwrap_err().to_string(), message);
    assert_eq!(serde_json::from_str::<Offset>(&(max + 1).to_string()).unwrap_err().to_string(), message);
    for text in ["", "-1", "x", "9223372036854775808", "18446744073709551616"] {
        let message = format!("offset must be a whole number from 0 to 9223372036854775807, not {text:?}");
        assert_eq!(text.parse::<Offset>().unwrap_err().to_string(), message);
    }
    let mut negative = Vec::new();
    put_long(-1, &mut negative);
    assert_eq!(Offset::from_bytes(&negative).unwrap_err().what, "number out of range");
    assert_eq!((Offset::from_signed(i64::MAX), Offset::MAX.signed()), (Ok(Offset::MAX), i64::MAX));
    let message = "partition must be a whole number from 0 to 2147483647, not \"-1\"";
    assert_eq!(PartitionId::from_signed(-1).unwrap_err().to_string(), message);
    assert_eq!(PartitionId::MAX.get(), i32::MAX.cast_unsigned());
    assert!(PartitionId::new(1 << 31).is_err() && "2147483648".parse::<PartitionId>().is_err());
}

#[test]
fn a_number_counts_to_its_maximum_and_no_further() {
    let seq = WriterSeq::from(7);
    assert_eq!((seq.next(), seq.saturating_sub(9)), (Some(WriterSeq::from(8)), WriterSeq::ZERO));
    assert_eq!(WriterSeq::MAX.saturating_add(u64::MAX), WriterSeq::MAX);
    assert_eq!((seq.since(WriterSeq::from(3)), WriterSeq::from(3).since(seq)), (4, 0));
    assert_eq!(PartitionId::all(3).map(PartitionId::get).collect::<Vec<_>>(), [0, 1, 2]);
}
