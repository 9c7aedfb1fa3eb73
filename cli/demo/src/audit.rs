//! Compares the desk's ledger with the journal by content. Each booking in the ledger belongs to exactly one completed call in
//! the journal, and vice versa. The journal contains exactly the calls that the agents made, and a repeated price query is a
//! second call.

use crate::{
    calls::AgentCall,
    demo::Demo,
    desk::{self, Booking, Request, Totals},
    error::Error,
    model::Heard,
};
use runlog_schemas::{
    answer::{Effect, EffectStatus, Lookup},
    id::Fingerprint,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The result of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Bookings in the desk's ledger.
    pub in_ledger: u64,
    /// Completed bookings in the journal.
    pub in_journal: u64,
    /// Bookings that the desk has more than once.
    pub twice: u64,
    /// Bookings that are missing in one of the two, or differ.
    pub lost: u64,
    /// Prices that the desk returned.
    pub prices: u64,
    /// Calls in the journal.
    pub calls: u64,
}

/// A call in the journal that completed a booking.
#[derive(Clone, Debug)]
struct BookingCall {
    /// Names the call in a difference.
    name: String,
    /// The arguments of the call, with the confirmation of its result.
    requested: Booking,
    /// The result of the call.
    booked: Booking,
}

/// Compares ledger and journal. Adds one sentence to `differences` for each difference.
pub(crate) async fn audit(
    demo: &Demo,
    ledger: &Path,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
) -> Result<Audit, Error> {
    let bookings = desk::read_ledger(ledger)
        .map_err(|error| Error::internal("the desk's ledger cannot be read").because(error))?;
    let totals: Totals = demo.desk.expect(Request::Totals).await?;
    let effects = demo.server.effects().await?;
    let calls = booking_calls(demo, &effects).await?;
    let mut audit = compare(&bookings, &calls, differences);
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
async fn booking_calls(demo: &Demo, effects: &[Effect]) -> Result<Vec<BookingCall>, Error> {
    let mut calls = Vec::new();
    let is_booking = |effect: &&Effect| {
        effect.pending.tool_name.starts_with("book_") && effect.pending.status == EffectStatus::Completed
    };
    for effect in effects.iter().filter(is_booking) {
        let (run_id, id) = (effect.run_id.as_str(), effect.pending.id.as_str());
        let name = format!("call {id} of run {run_id}");
        let call: Lookup = demo.server.get(&["runs", run_id, "calls", id], &[]).await?;
        let result = call.result.map_or(Value::Null, |result| result.to_value());
        let booked: Booking = serde_json::from_value(result)
            .map_err(|error| Error::internal(format!("{name} has no booking for a result")).because(error))?;
        let arguments = call.arguments.map_or(Value::Null, |arguments| arguments.to_value());
        let text = |name: &str, other: &str| {
            arguments[name].as_str().or(arguments[other].as_str()).unwrap_or_default().to_owned()
        };
        let requested = Booking {
            confirmation: booked.confirmation.clone(),
            item: text("flight", "room"),
            date: text("date", "date"),
            customer: text("passenger", "guest"),
        };
        calls.push(BookingCall { name, requested, booked });
    }
    Ok(calls)
}

/// Compares the bookings by content, in both directions.
fn compare(ledger: &[Booking], journal: &[BookingCall], differences: &mut Vec<String>) -> Audit {
    let mut audit = Audit { in_ledger: ledger.len() as u64, in_journal: journal.len() as u64, ..Audit::default() };
    let mut by_confirmation: BTreeMap<&str, Vec<&BookingCall>> = BTreeMap::new();
    for call in journal {
        by_confirmation.entry(&call.booked.confirmation).or_default().push(call);
    }
    let mut sold = BTreeSet::new();
    for booking in ledger {
        let Booking { confirmation, item, date, customer } = booking;
        let calls = by_confirmation.remove(confirmation.as_str()).unwrap_or_default();
        if !matches!(calls[..], [only] if only.booked == *booking && only.requested == *booking) {
            audit.lost += 1;
            differences.push(format!("the ledger has {booking:?}, but the journal has these calls for it: {calls:?}"));
        }
        if !sold.insert((item, date, customer)) {
            audit.twice += 1;
            differences.push(format!(
                "{customer} has more than one booking of {item} on {date}: {confirmation} is not the first"
            ));
        }
    }
    for BookingCall { name, booked, .. } in by_confirmation.into_values().flatten() {
        audit.lost += 1;
        differences.push(format!("{name} got {booked:?}, which is not in the ledger"));
    }
    audit
}

/// Checks that the journal has exactly the calls that the agents made.
fn compare_calls(agent_calls: &[AgentCall], effects: &[Effect], differences: &mut Vec<String>) {
    let made: BTreeSet<(&str, &str, u32)> =
        agent_calls.iter().map(|call| (call.run_id.as_str(), call.fingerprint.as_str(), call.occurrence)).collect();
    let recorded = effects.iter().map(|Effect { run_id, pending, .. }| {
        (run_id.as_str(), pending.fingerprint.as_ref().map_or("", Fingerprint::as_str), pending.occurrence)
    });
    let recorded: BTreeSet<_> = recorded.collect();
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
    let prices: Vec<&Heard> =
        agent_calls.iter().filter(|call| call.tool == "get_price").map(|call| &call.heard).collect();
    let numbers = prices.iter().filter_map(|heard| match heard {
        Heard::Result(price) => price["question"].as_u64(),
        Heard::Error { .. } => None,
    });
    let (numbers, price_calls) = (numbers.collect::<BTreeSet<_>>(), prices.len());
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

    fn booking(confirmation: &str, customer: &str) -> Booking {
        let [confirmation, item, date, customer] = [confirmation, "AQ 1", "2027-01-01", customer].map(str::to_owned);
        Booking { confirmation, item, date, customer }
    }

    fn call(confirmation: &str, customer: &str) -> BookingCall {
        let booked = booking(confirmation, customer);
        BookingCall { name: String::new(), requested: booked.clone(), booked }
    }

    fn counts(ledger: &[Booking], journal: &[BookingCall]) -> (u64, u64, usize) {
        let mut differences = Vec::new();
        let audit = compare(ledger, journal, &mut differences);
        (audit.twice, audit.lost, differences.len())
    }

    #[test]
    fn every_way_to_differ_is_seen() {
        let (ledger, journal) = ([booking("A", "a"), booking("B", "b")], [call("B", "b"), call("A", "a")]);
        assert_eq!(counts(&ledger, &journal), (0, 0, 0));
        assert_eq!(counts(&ledger, &journal[..1]), (0, 1, 1), "in the ledger only");
        assert_eq!(counts(&ledger[..1], &journal), (0, 1, 1), "in the journal only");
        let twice = [booking("A", "a"), booking("C", "a")];
        assert_eq!(counts(&twice, &[call("A", "a")]), (1, 1, 2), "booked twice, answered once");
        assert_eq!(counts(&ledger[..1], &[call("A", "a"), call("A", "a")]), (0, 1, 1), "answered twice");
        assert_eq!(counts(&ledger[..1], &[call("A", "x")]), (0, 1, 1), "answered differently");
        let other = BookingCall { requested: booking("A", "x"), ..call("A", "a") };
        assert_eq!(counts(&ledger[..1], &[other]), (0, 1, 1), "the agent requested another item");
    }
}
