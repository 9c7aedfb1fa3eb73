//! The desk's stock. It is computed from the query alone, so that the desk stores no stock.

use crate::dice::Dice;
use serde_json::{Value, json};

const AIRLINES: [&str; 6] = ["AQ", "DK", "FJ", "KV", "NX", "TO"];
const HOTELS: [&str; 6] = ["Aurora", "Bellevue", "Central", "Laguna", "Miramar", "Union"];
/// One flight in six is sold out. A search does not show whether a flight is sold out.
const SOLD_OUT_EVERY: u32 = 6;

/// Returns two to four flights. The last flight has seats.
pub(super) fn flights(from: &str, to: &str, date: &str) -> Value {
    let mut dice = Dice::from_text(&format!("{from}{to}{date}"));
    let count = 2 + dice.below(3);
    let flight = |at: u32| {
        let number = 100 + dice.below(150) * SOLD_OUT_EVERY;
        let number = number - number % SOLD_OUT_EVERY;
        // Only flights with a number divisible by SOLD_OUT_EVERY are sold out.
        let seats = at + 1 == count || dice.below(SOLD_OUT_EVERY) != 0;
        let number = if seats { number + 1 + dice.below(SOLD_OUT_EVERY - 1) } else { number };
        let departs = format!("{:02}:{:02}", 5 + 3 * at + dice.below(3), dice.below(12) * 5);
        json!({"flight": format!("{} {number}", dice.pick(&AIRLINES)), "departs": departs})
    };
    (0..count).map(flight).collect()
}

/// Returns two rooms.
pub(super) fn rooms(city: &str, date: &str) -> Value {
    let mut dice = Dice::from_text(&format!("{city}{date}"));
    let first = dice.below(HOTELS.len() as u32) as usize;
    [first, (first + 1) % HOTELS.len()]
        .into_iter()
        .map(|hotel| json!({"room": format!("Hotel {} {city}, room {}", HOTELS[hotel], 101 + dice.below(300))}))
        .collect()
}

/// Returns whether an item is sold out.
pub(super) fn sold_out(item: &str) -> bool {
    let Some((airline, number)) = item.split_once(' ') else { return false };
    AIRLINES.contains(&airline) && number.parse::<u32>().is_ok_and(|number| number % SOLD_OUT_EVERY == 0)
}

/// Returns a price. It changes a little with each query, whichever customer asks.
pub(super) fn price(item: &str, date: &str, question: u64) -> Value {
    let base = 60 + u64::from(Dice::from_text(&format!("{item}{date}")).below(240));
    json!({"flight": item, "eur": base + question % 7, "question": question})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_flight_of_a_list_has_seats_and_some_other_flight_has_none() {
        let mut none_left = 0;
        for day in 1..=200 {
            let flights = flights("BER", "LIS", &day.to_string());
            let names: Vec<&str> =
                flights.as_array().unwrap().iter().map(|flight| flight["flight"].as_str().unwrap()).collect();
            assert!(!sold_out(names[names.len() - 1]), "{names:?}");
            none_left += names.iter().filter(|name| sold_out(name)).count();
        }
        assert!(none_left > 10, "{none_left}");
        assert!(!sold_out("Hotel Union LIS, room 102"));
    }
}
