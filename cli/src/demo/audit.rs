//! Compares the desk's ledger with the journal by content. Each booking in the ledger belongs to exactly one completed call in
//! the journal, and vice versa. The journal contains exactly the calls that the agents made, and a repeated price query is a
//! second call.

use super::{
    calls::AgentCall,
    desk::{self, Booking, Line},
    model::Heard,
    site::{Site, WAIT},
};
use crate::Error;
use runlog_schemas::{
    answer::{Effect, EffectStatus, ErrorKind},
    id::{Fingerprint, RecordId, RunId},
};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The result of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Audit {
    /// Bookings in the desk's ledger.
    pub(super) in_ledger: u64,
    /// Completed bookings in the journal.
    pub(super) in_journal: u64,
    /// Bookings that the desk has more than once.
    pub(super) twice: u64,
    /// Bookings that are missing in one of the two, or differ.
    pub(super) lost: u64,
    /// Prices that the desk returned.
    pub(super) prices: u64,
    /// Calls in the journal.
    pub(super) calls: u64,
}

/// A call in the journal that completed a booking.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BookingCall {
    run_id: RunId,
    id: RecordId,
    /// The requested booking.
    request: BookingRequest,
    /// The resulting booking.
    booking: Booking,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BookingRequest {
    item: String,
    date: String,
    customer: String,
}

/// Compares ledger and journal. Adds one sentence to `differences` for each difference.
pub(super) async fn audit(
    site: &Site,
    ledger: &Path,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
) -> Result<Audit, Error> {
    let lines = desk::read(ledger)
        .map_err(|error| Error::new(ErrorKind::Internal, "the desk's ledger cannot be read").because(error))?;
    let totals = site.desk.totals(WAIT).await?;
    let effects = site.effects().await?;
    let calls = booking_calls(site, &effects).await?;
    let mut audit = compare(&lines, &calls, differences);
    audit.prices = totals.prices;
    audit.calls = effects.len() as u64;
    if totals.bookings != audit.in_ledger {
        differences.push(format!("the desk counts {} bookings, its ledger has {}", totals.bookings, audit.in_ledger));
    }
    compare_calls(agent_calls, &effects, differences);
    compare_prices(agent_calls, totals.prices, differences);
    Ok(audit)
}

/// Returns the calls that completed a booking, from the journal.
async fn booking_calls(site: &Site, effects: &[Effect]) -> Result<Vec<BookingCall>, Error> {
    let mut calls = Vec::new();
    let is_booking = |effect: &&Effect| effect.pending.tool_name.starts_with("book_");
    for effect in effects.iter().filter(is_booking).filter(|effect| effect.pending.status == EffectStatus::Completed) {
        let (run_id, id) = (effect.run_id.clone(), effect.pending.id.clone());
        let call = site.call(run_id.as_str(), id.borrow()).await?;
        let arguments = call.arguments.map_or(Value::Null, |arguments| arguments.to_value());
        let text = |name: &str| arguments[name].as_str().map(str::to_owned);
        let request = BookingRequest {
            item: text("flight").or(text("room")).unwrap_or_default(),
            date: text("date").unwrap_or_default(),
            customer: text("passenger").or(text("guest")).unwrap_or_default(),
        };
        let result = call.result.map_or(Value::Null, |result| result.to_value());
        let booking = serde_json::from_value(result).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("call {id} of run {run_id} has no booking for a result"))
                .because(error)
        })?;
        calls.push(BookingCall { run_id, id, request, booking });
    }
    Ok(calls)
}

/// Compares the bookings by content, in both directions.
fn compare(ledger: &[Line], journal: &[BookingCall], differences: &mut Vec<String>) -> Audit {
    let mut audit = Audit { in_ledger: ledger.len() as u64, in_journal: journal.len() as u64, ..Audit::default() };
    let mut by_confirmation: BTreeMap<&str, Vec<&BookingCall>> = BTreeMap::new();
    for call in journal {
        by_confirmation.entry(&call.booking.confirmation).or_default().push(call);
    }
    let mut requests = BTreeSet::new();
    for Line { booking, .. } in ledger {
        let Booking { confirmation, item, date, customer } = booking;
        let request = BookingRequest { item: item.clone(), date: date.clone(), customer: customer.clone() };
        let calls = by_confirmation.remove(confirmation.as_str()).unwrap_or_default();
        if !matches!(calls[..], [only] if only.booking == *booking && only.request == request) {
            audit.lost += 1;
            let calls: Vec<_> = calls.iter().map(|call| (&call.run_id, &call.id, &call.booking)).collect();
            differences.push(format!("the ledger has {booking:?}, but the journal has these calls for it: {calls:?}"));
        }
        if !requests.insert(request) {
            audit.twice += 1;
            differences.push(format!(
                "{customer} has more than one booking of {item} on {date}: {confirmation} is not the first"
            ));
        }
    }
    for call in by_confirmation.into_values().flatten() {
        audit.lost += 1;
        let BookingCall { run_id, id, booking, .. } = call;
        differences.push(format!("call {id} of run {run_id} got {booking:?}, which is not in the ledger"));
    }
    audit
}

/// Checks that the journal has exactly the calls that the agents made.
fn compare_calls(agent_calls: &[AgentCall], effects: &[Effect], differences: &mut Vec<String>) {
    type Call<'a> = (&'a str, &'a str, u32);
    let made: BTreeSet<Call<'_>> =
        agent_calls.iter().map(|call| (call.run_id.as_str(), call.fingerprint.as_str(), call.occurrence)).collect();
    let recorded: BTreeSet<Call<'_>> = effects
        .iter()
        .map(|effect| {
            (
                effect.run_id.as_str(),
                effect.pending.fingerprint.as_ref().map_or("", Fingerprint::as_str),
                effect.pending.occurrence,
            )
        })
        .collect();
    for call in made.symmetric_difference(&recorded) {
        let has = if made.contains(call) { "an agent made but the journal lacks" } else { "only the journal has" };
        differences.push(format!("there is a call that {has}: {call:?}"));
    }
    for effect in effects.iter().filter(|effect| effect.pending.status == EffectStatus::Pending) {
        differences.push(format!("call {} of run {} is still pending", effect.pending.id, effect.run_id));
    }
}

/// Checks that each repeated price query reached the desk. Each of the desk's answers has its own number.
fn compare_prices(agent_calls: &[AgentCall], desk_prices: u64, differences: &mut Vec<String>) {
    let is_price_call = |call: &&AgentCall| call.tool == "get_price";
    let number = |call: &AgentCall| match &call.heard {
        Heard::Result(price) => price["question"].as_u64(),
        Heard::Error { .. } => None,
    };
    let numbers: BTreeSet<u64> = agent_calls.iter().filter(is_price_call).filter_map(number).collect();
    let price_calls = agent_calls.iter().filter(is_price_call).count();
    if numbers.len() != price_calls || price_calls as u64 != desk_prices {
        differences.push(format!(
            "the agents requested {price_calls} prices and know {} answers, but the desk returned {desk_prices}",
            numbers.len()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(confirmation: &str, customer: &str) -> Line {
        let booking = Booking {
            confirmation: confirmation.into(),
            item: "AQ 1".into(),
            date: "2027-01-01".into(),
            customer: customer.into(),
        };
        Line { booking, key: None }
    }

    fn booking_call(confirmation: &str, customer: &str) -> BookingCall {
        let booking = line(confirmation, customer).booking;
        let Booking { item, date, customer, .. } = booking.clone();
        BookingCall {
            run_id: "r".parse().unwrap(),
            id: confirmation.parse().unwrap(),
            request: BookingRequest { item, date, customer },
            booking,
        }
    }

    fn counts(ledger: &[Line], journal: &[BookingCall]) -> (u64, u64, usize) {
        let mut differences = Vec::new();
        let audit = compare(ledger, journal, &mut differences);
        (audit.twice, audit.lost, differences.len())
    }

    #[test]
    fn every_way_to_differ_is_seen() {
        let both = (vec![line("A", "a"), line("B", "b")], vec![booking_call("B", "b"), booking_call("A", "a")]);
        assert_eq!(counts(&both.0, &both.1), (0, 0, 0));
        assert_eq!(counts(&both.0, &both.1[..1]), (0, 1, 1), "in the ledger only");
        assert_eq!(counts(&both.0[..1], &both.1), (0, 1, 1), "in the journal only");
        assert_eq!(
            counts(&[line("A", "a"), line("C", "a")], &[booking_call("A", "a")]),
            (1, 1, 2),
            "booked twice, answered once"
        );
        assert_eq!(
            counts(&[line("A", "a")], &[booking_call("A", "a"), booking_call("A", "a")]),
            (0, 1, 1),
            "answered twice"
        );
        assert_eq!(counts(&[line("A", "a")], &[booking_call("A", "x")]), (0, 1, 1), "answered differently");
        let other = BookingCall {
            request: BookingRequest { item: "AQ 2".into(), ..booking_call("A", "a").request },
            ..booking_call("A", "a")
        };
        assert_eq!(counts(&[line("A", "a")], &[other]), (0, 1, 1), "another was asked for");
    }
}
