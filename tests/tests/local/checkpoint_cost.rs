//! Checkpoints after every turn store about the bytes of the run's messages, and each is read back identical.

use anyhow::{Context, ensure};
use runlog_schemas::{
    id::JournalSeq,
    json::Json,
    messages::MessageList,
    payload::{CheckpointPrune, Payload},
    record::JournalRecord,
};
use runlog_tests::{
    agent::Agent,
    checkpoints::{Journal, measure, stories::Story},
    random::Random,
};
use serde_json::json;

/// Bytes of a checkpoint's envelope, numbers, spans and rows, which do not depend on the number of earlier turns.
const SMALL: u64 = 1024;

#[test]
fn a_run_that_checkpoints_after_each_turn_stores_at_most_twice_its_messages_and_loads_each_as_it_was()
-> anyhow::Result<()> {
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    for story in Story::ALL {
        for turns in [10, 100, 500] {
            let costs = measure(story, turns, seed)?;
            let context = || format!("{story:?}, {costs:?}");
            ensure!(costs.log <= 2 * costs.messages + SMALL * turns, "the log: {}", context());
            ensure!(costs.message_rows <= 2 * costs.messages + SMALL * turns, "rows of messages: {}", context());
            ensure!(costs.list_rows <= 2 * SMALL * turns, "rows of lists: {}", context());
            // Its row, its record's envelope and the pages of its list; each message once, with a few bytes around it.
            ensure!(costs.bytes_read_beyond_max <= 3 * SMALL + 12 * 2 * turns, "loading reads: {}", context());
            ensure!(costs.rows_read_beyond_max <= 2 + turns / 16, "loading reads: {}", context());
        }
    }
    Ok(())
}

/// A checkpoint as it was saved.
struct Saved {
    id: String,
    covers: JournalSeq,
    messages: Vec<Json>,
    pruned: bool,
}

/// A run whose checkpoints are made by a script of random edits.
struct Script {
    random: Random,
    journal: Journal,
    agent: Agent,
    saved: Vec<Saved>,
    /// Checkpoints that may be a base.
    bases: Vec<(String, MessageList)>,
    messages: Vec<Json>,
    made: u64,
}

impl Script {
    fn new(seed: u64) -> anyhow::Result<Self> {
        let (random, agent) = (Random::new(seed), Agent::new("run"));
        let (saved, bases, messages) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { random, journal: Journal::new()?, agent, saved, bases, messages, made: 0 })
    }

    fn index(&mut self, to: usize) -> usize {
        usize::try_from(self.random.between(0, to as u64)).unwrap_or(0)
    }

    fn message(&mut self) -> Json {
        self.made += 1;
        let length = self.index(300);
        json!({"role": "user", "n": self.made, "content": "x".repeat(length)}).into()
    }

    fn edit(&mut self) {
        let length = self.messages.len();
        let (a, b) = (self.index(length + 1), self.index(length + 1));
        let part = a.min(b)..a.max(b);
        match self.random.between(0, 12) {
            0 if part.len() < length / 4 => drop(self.messages.drain(part)),
            1 if part.len() < 20 => {
                let moved: Vec<Json> = self.messages.drain(part).collect();
                let at = self.index(self.messages.len() + 1);
                self.messages.splice(at..at, moved);
            }
            2 if part.len() < 20 => {
                let repeated = self.messages[part].to_vec();
                self.messages.extend(repeated);
            }
            3 if length > 400 => {
                let summary = self.message();
                self.messages.splice(1..length - 100, [summary]);
            }
            4 if length > 0 => {
                // A message that an agent parsed again: the same text, not the same value.
                let at = self.index(length);
                self.messages[at] = Json::parse(self.messages[at].as_str()).unwrap_or_else(|_| unreachable!("JSON"));
            }
            5..8 if length > 0 => {
                let at = self.index(length);
                self.messages[at] = self.message();
            }
            _ => {
                for _ in 0..3 {
                    let new = self.message();
                    self.messages.push(new);
                }
            }
        }
    }

    fn checkpoint(&mut self) {
        // Nearly always the last base, as a writer chooses it; any other base is valid, too.
        let last = self.bases.len().saturating_sub(1);
        let at = if self.random.between(0, 8) == 0 { self.index(last + 1) } else { last };
        let empty = (String::new(), MessageList::default());
        let (base, list) = self.bases.get(at).unwrap_or(&empty);
        let change = list.change(&self.messages);
        let record = self.agent.changed(Some(base), &change);
        self.journal.append(&record);
        let Payload::LoopCheckpoint(checkpoint) = record.payload else { unreachable!("a checkpoint") };
        let (id, covers) = (checkpoint.checkpoint_id.clone(), checkpoint.covers_journal_seq);
        self.saved.push(Saved { id, covers, messages: self.messages.clone(), pruned: false });
        self.bases.push((checkpoint.checkpoint_id, change.list));
        if self.bases.len() > 5 {
            self.bases.remove(0);
        }
    }

    /// Hides checkpoints that cover less than now: all of them, or a part.
    fn prune(&mut self) {
        let turn = self.agent.turn("before the prune");
        self.journal.append(&turn);
        let after = self.random.between(0, turn.place.journal_seq.get() + 2);
        let covered_before = JournalSeq::ZERO.saturating_add(after);
        let prune = CheckpointPrune { prune_covered_before: covered_before, preserve_latest_terminal: false };
        let record = self.agent.record(prune.into());
        self.journal.append(&record);
        self.bases.clear();
        self.saved.iter_mut().filter(|saved| saved.covers < covered_before).for_each(|saved| saved.pruned = true);
    }

    /// The latest, by the contract's order.
    fn latest(&self, at_or_before: u64) -> Option<(String, Vec<Json>)> {
        let seen = self.saved.iter().filter(|saved| !saved.pruned && saved.covers.get() <= at_or_before);
        // Saved in the order of their numbers.
        seen.max_by_key(|saved| saved.covers).map(|saved| (saved.id.clone(), saved.messages.clone()))
    }
}

#[test]
fn after_any_edits_every_checkpoint_loads_as_it_was_saved_and_a_rebuild_makes_the_same_rows() -> anyhow::Result<()> {
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    for seed in seed..seed + 6 {
        let mut script = Script::new(seed)?;
        for turn in 0..250_u32 {
            for _ in 0..script.random.between(1, 12) {
                script.edit();
            }
            script.checkpoint();
            if script.random.between(0, 50) == 0 {
                script.prune();
            }
            if turn.is_multiple_of(7) {
                script.journal.fold(3)?;
            }
        }
        script.journal.fold(1)?;
        let journal = &script.journal;
        ensure!(journal.refused()?.is_empty(), "seed {seed}: {:?}", journal.refused()?);
        for saved in &script.saved {
            let loaded = journal.load("run", &saved.id)?.0.map(|loaded| loaded.messages);
            let expected = (!saved.pruned).then_some(&saved.messages);
            ensure!(loaded.as_ref() == expected, "seed {seed}: {} has other messages, or is hidden or not", saved.id);
        }
        for at_or_before in 0..20 {
            ensure!(journal.latest("run", at_or_before)? == script.latest(at_or_before), "seed {seed}: {at_or_before}");
        }
        ensure!(journal.rebuilt(1000)?.digests()? == journal.digests()?, "seed {seed}: a rebuild has other rows");
    }
    Ok(())
}

/// A run with four checkpoints, each based on its predecessor and covering 1, 2, 3 and 3 records, the last two after
/// its end; then a prune.
fn pruned(covered_before: u64, preserve_latest_terminal: bool) -> anyhow::Result<(Journal, Agent, MessageList)> {
    let (mut journal, mut agent) = (Journal::new()?, Agent::new("run"));
    let mut list = MessageList::default();
    for number in 1..=4 {
        match number {
            1 | 2 => journal.append(&agent.turn("on")),
            3 => journal.append(&agent.lifecycle("completed")),
            _ => 0,
        };
        let message = |number: u64| Json::from(json!({"number": number, "content": "x".repeat(200)}));
        let change = list.change(&(1..=number).map(message).collect::<Vec<_>>());
        journal.append(&agent.changed(Some(&format!("checkpoint-{}", number - 1)), &change));
        list = change.list;
    }
    let prune = CheckpointPrune {
        prune_covered_before: JournalSeq::ZERO.saturating_add(covered_before),
        preserve_latest_terminal,
    };
    journal.append(&agent.record(prune.into()));
    journal.fold(1024)?;
    Ok((journal, agent, list))
}

/// The number of messages of each of the four, unless hidden.
fn lengths(journal: &Journal) -> anyhow::Result<[Option<usize>; 4]> {
    let mut lengths = [None; 4];
    for (length, number) in lengths.iter_mut().zip(1..) {
        *length = journal.load("run", &format!("checkpoint-{number}"))?.0.map(|loaded| loaded.messages.len());
    }
    Ok(lengths)
}

#[test]
fn a_prune_hides_older_checkpoints_and_keeps_the_bases_of_the_others() -> anyhow::Result<()> {
    for (covered_before, preserve, expected) in [
        (0, false, [Some(1), Some(2), Some(3), Some(4)]),
        (3, false, [None, None, Some(3), Some(4)]),
        (3, true, [None, None, Some(3), Some(4)]),
        (99, true, [None, None, None, Some(4)]),
        (99, false, [None; 4]),
    ] {
        let (journal, ..) = pruned(covered_before, preserve)?;
        ensure!(lengths(&journal)? == expected, "{covered_before}, {preserve}: {:?}", lengths(&journal)?);
        let latest = journal.latest("run", u64::MAX)?.map(|(id, messages)| (id, messages.len()));
        let last = expected[3].map(|length| ("checkpoint-4".to_owned(), length));
        ensure!(latest == last, "{covered_before}, {preserve}: {latest:?}");
        let rebuilt = journal.rebuilt(2)?;
        ensure!(rebuilt.digests()? == journal.digests()?, "a rebuild in other batches has other rows");
    }
    Ok(())
}

#[test]
fn a_checkpoint_based_on_a_pruned_one_is_refused_and_a_complete_one_is_applied() -> anyhow::Result<()> {
    let (mut journal, mut agent, list) = pruned(99, false)?;
    let messages = [Json::from(json!("x".repeat(300)))];
    let change = list.change(list.messages());
    let refused: JournalRecord = agent.changed(Some("checkpoint-4"), &change);
    journal.append(&refused);
    let whole = MessageList::default().change(&messages);
    let taken = agent.changed(None, &whole);
    journal.append(&taken);
    journal.fold(1024)?;
    ensure!(journal.refused()? == [format!("{} checkpoint", refused.body.record_id)], "{:?}", journal.refused()?);
    let Payload::LoopCheckpoint(checkpoint) = &taken.payload else { unreachable!("a checkpoint") };
    let (id, found) = journal.latest("run", u64::MAX)?.context("the whole one")?;
    ensure!(id == checkpoint.checkpoint_id && found == messages, "{id}");
    Ok(())
}

#[test]
fn a_checkpoint_whose_messages_do_not_match_its_facts_is_never_answered() -> anyhow::Result<()> {
    let (mut journal, mut agent) = (Journal::new()?, Agent::new("run"));
    let messages: Vec<Json> = (0..5).map(|n| Json::from(json!({"n": n, "content": "x".repeat(100)}))).collect();
    let first = MessageList::default().change(&messages[..2]);
    journal.append(&agent.changed(None, &first));
    let mut lying = agent.changed(Some("checkpoint-1"), &first.list.change(&messages[..4]));
    lying.body.facts.message_bytes[1] += 1;
    journal.append(&lying);
    // The third checkpoint has correct facts, but inherits the mismatched list. The fourth inherits only its correct part.
    let change = MessageList::new(messages[..4].to_vec()).change(&messages);
    journal.append(&agent.changed(Some("checkpoint-2"), &change));
    let change = MessageList::new(messages[..4].to_vec()).change(&messages[..3]);
    journal.append(&agent.changed(Some("checkpoint-2"), &change));
    journal.fold(1024)?;
    ensure!(journal.refused()?.is_empty(), "{:?}", journal.refused()?);
    ensure!(lengths(&journal)? == [Some(2), None, None, Some(3)], "{:?}", lengths(&journal)?);
    Ok(())
}
