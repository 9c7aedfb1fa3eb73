//! The placement of a journal's partitions on the instances of a list. It is a pure function: instances with the same list agree
//! without a message.
//!
//! ```text
//!   partition ─▶ copies in each zone, in proportion to the zone's members ─▶ members of the zone, as equally as possible
//! ```
//!
//! Rendezvous hashing with bounded load: a partition prefers the members with the highest score, which is a hash of both, and a
//! member has room for its share. A change of the list moves few copies, because the other scores stay.
//!
//! A test freezes the result. Two builds that placed differently could leave a partition without a copy.

use runlog_schemas::datum::Sha256;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

/// An instance of the list.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name, which no other member has.
    pub name: &'a str,
    /// Its zone; empty if the list has no zones. The copies of a partition are in different zones if possible.
    pub zone: &'a str,
}

/// Places `copies` copies of each of `partitions` partitions, or one copy on each member if there are fewer members. Returns the
/// holders of each partition as indices into `members`, the preferred holder first. The order of `members` has no effect on the
/// names.
pub fn holders(partitions: u32, members: &[Member<'_>], copies: usize) -> Vec<Vec<usize>> {
    let partitions = partitions as usize;
    let mut by_name: Vec<usize> = (0..members.len()).collect();
    by_name.sort_by_key(|member| members[*member].name);
    let mut zones = BTreeMap::<&str, Vec<usize>>::new();
    for member in by_name {
        zones.entry(members[member].zone).or_default().push(member);
    }
    let names: Vec<&str> = zones.keys().copied().collect();
    let sizes: Vec<usize> = zones.values().map(Vec::len).collect();
    let in_zones = zone_copies(partitions, copies.min(members.len()), &names, &sizes);
    let mut placed = vec![Vec::new(); partitions];
    for (zone, of_zone) in zones.values().enumerate() {
        let demand: Vec<usize> = in_zones.iter().map(|counts| counts[zone]).collect();
        let room = equal_shares(demand.iter().sum(), of_zone.len(), |nth| score("room", members[of_zone[nth]].name, 0));
        let holders = assign(&demand, &room, |partition, nth| score("place", members[of_zone[nth]].name, partition));
        for (all, chosen) in placed.iter_mut().zip(holders) {
            all.extend(chosen.into_iter().map(|nth| of_zone[nth]));
        }
    }
    for (partition, holders) in placed.iter_mut().enumerate() {
        holders.sort_by_key(|member| {
            let name = members[*member].name;
            (Reverse(score("place", name, partition)), name)
        });
    }
    placed
}

/// The copies of each partition in each zone. Each zone takes one copy after the other while all zones with members left can take
/// one. The remaining copies are in different zones, in proportion to the members that are left.
fn zone_copies(partitions: usize, copies: usize, names: &[&str], sizes: &[usize]) -> Vec<Vec<usize>> {
    let (mut left, mut rest, mut base) = (sizes.to_vec(), copies, vec![0; sizes.len()]);
    loop {
        let open: Vec<usize> = (0..left.len()).filter(|zone| left[*zone] > 0).collect();
        if open.is_empty() || rest < open.len() {
            break;
        }
        rest -= open.len();
        open.into_iter().for_each(|zone| (left[zone], base[zone]) = (left[zone] - 1, base[zone] + 1));
    }
    let room = proportional_shares(partitions * rest, partitions, &left);
    let more = assign(&vec![rest; partitions], &room, |partition, zone| score("zone", names[zone], partition));
    let with_base = |zones: Vec<usize>| {
        let mut counts = base.clone();
        zones.into_iter().for_each(|zone| counts[zone] += 1);
        counts
    };
    more.into_iter().map(with_base).collect()
}

/// Shares `total` among bins in proportion to their weights, at most `max` for each bin. The bins with a weight have enough room.
fn proportional_shares(total: usize, max: usize, weights: &[usize]) -> Vec<usize> {
    let (mut shares, mut rest) = (vec![0; weights.len()], total);
    let mut open: Vec<usize> = (0..weights.len()).filter(|bin| weights[*bin] > 0).collect();
    loop {
        let weight: usize = open.iter().map(|bin| weights[*bin]).sum();
        // A bin with a share above `max` gets `max`, and the other bins share the rest.
        let (full, others): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|bin| rest * weights[**bin] > max * weight);
        if full.is_empty() {
            let mut remainders = Vec::new();
            for bin in &open {
                shares[*bin] = rest * weights[*bin] / weight;
                remainders.push((Reverse(rest * weights[*bin] % weight), *bin));
            }
            remainders.sort_unstable();
            let rounded: usize = open.iter().map(|bin| shares[*bin]).sum();
            remainders.iter().take(rest - rounded).for_each(|(_, bin)| shares[*bin] += 1);
            return shares;
        }
        rest -= full.len() * max;
        full.into_iter().for_each(|bin| shares[bin] = max);
        open = others;
    }
}

/// Shares `total` equally among `bins` bins. The bins with the highest scores get one more.
fn equal_shares(total: usize, bins: usize, score: impl Fn(usize) -> u64) -> Vec<usize> {
    let mut preferred: Vec<usize> = (0..bins).collect();
    preferred.sort_by_key(|bin| Reverse(score(*bin)));
    let mut shares = vec![total / bins; bins];
    preferred.into_iter().take(total % bins).for_each(|bin| shares[bin] += 1);
    shares
}

/// Assigns `demand[i]` different bins to each item `i`, and at most `room[b]` items to each bin `b`. The pairs with the highest scores
/// come first. The rooms suffice for the demand.
fn assign(demand: &[usize], room: &[usize], score: impl Fn(usize, usize) -> u64) -> Vec<Vec<usize>> {
    let mut pairs: Vec<(Reverse<u64>, usize, usize)> = Vec::new();
    for item in (0..demand.len()).filter(|item| demand[*item] > 0) {
        pairs.extend((0..room.len()).map(|bin| (Reverse(score(item, bin)), bin, item)));
    }
    pairs.sort_unstable();
    let mut table = Table { bins_of: vec![Vec::new(); demand.len()], room: room.to_vec() };
    for (_, bin, item) in pairs {
        if table.bins_of[item].len() < demand[item] && table.room[bin] > 0 {
            table.take(item, bin);
        }
    }
    // The last items may lack a bin although a bin has room: they already have that bin.
    for (item, wanted) in demand.iter().enumerate() {
        while table.bins_of[item].len() < *wanted {
            let is_found = table.make_room(item, &score);
            debug_assert!(is_found, "the rooms suffice for the demand, so a path exists (Gale and Ryser)");
            if !is_found && !table.take_anyway(item) {
                break;
            }
        }
    }
    table.bins_of
}

/// The items' bins, and the room that is left in each bin.
struct Table {
    bins_of: Vec<Vec<usize>>,
    room: Vec<usize>,
}

/// How a search reaches a bin: the item that can take it, and the bin that the item gives up for it.
type Reached = Option<(usize, Option<usize>)>;

impl Table {
    fn take(&mut self, item: usize, bin: usize) {
        self.bins_of[item].push(bin);
        self.room[bin] = self.room[bin].saturating_sub(1);
    }

    /// Gives `item` one more bin: it takes a bin from another item, which takes another bin, and so on until a bin has room. Uses a
    /// shortest path. Returns whether there is one.
    fn make_room(&mut self, item: usize, score: impl Fn(usize, usize) -> u64) -> bool {
        let mut reached: Vec<Reached> = vec![None; self.room.len()];
        let mut queue = VecDeque::new();
        let reach = |reached: &mut Vec<Reached>, queue: &mut VecDeque<usize>, by: usize, from: Option<usize>| {
            let own = &self.bins_of[by];
            let mut new: Vec<usize> =
                (0..reached.len()).filter(|bin| reached[*bin].is_none() && !own.contains(bin)).collect();
            new.sort_by_key(|bin| Reverse(score(by, *bin)));
            for bin in new {
                reached[bin] = Some((by, from));
                queue.push_back(bin);
            }
        };
        reach(&mut reached, &mut queue, item, None);
        while let Some(bin) = queue.pop_front() {
            if self.room[bin] > 0 {
                self.apply(&reached, bin);
                return true;
            }
            let holders = (0..self.bins_of.len()).filter(|other| self.bins_of[*other].contains(&bin));
            holders.for_each(|other| reach(&mut reached, &mut queue, other, Some(bin)));
        }
        false
    }

    /// Moves each item on the path that ends at `free`, which has room.
    fn apply(&mut self, reached: &[Reached], mut free: usize) {
        self.room[free] -= 1;
        while let Some((by, from)) = reached[free] {
            self.bins_of[by].push(free);
            let Some(from) = from else { return };
            self.bins_of[by].retain(|bin| *bin != from);
            free = from;
        }
    }

    /// Gives `item` the bin with the fewest items that it lacks, beyond the bin's room. Returns whether it lacks one.
    fn take_anyway(&mut self, item: usize) -> bool {
        let items_in = |bin: usize| self.bins_of.iter().filter(|bins| bins.contains(&bin)).count();
        let lacking = (0..self.room.len()).filter(|bin| !self.bins_of[item].contains(bin));
        let Some(bin) = lacking.min_by_key(|bin| items_in(*bin)) else { return false };
        self.take(item, bin);
        true
    }
}

/// The first 8 bytes, big endian, of the SHA-256 of a name and a number.
fn score(purpose: &str, name: &str, number: usize) -> u64 {
    let to_bytes = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let mut text = format!("runlog {purpose} 1").into_bytes();
    text.extend(to_bytes(name.len()));
    text.extend(name.as_bytes());
    text.extend(to_bytes(number));
    Sha256::of(&text).0.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests;
