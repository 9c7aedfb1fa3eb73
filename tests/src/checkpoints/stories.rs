//! How agents' message lists change from turn to turn.

use runlog_schemas::json::Json;
use serde_json::json;

use crate::random::Random;

/// A way of keeping a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// It only grows.
    Grows,
    /// Each turn, a stub replaces the tool's answer of five turns before: most agents save context in this way.
    Elides,
    /// Every 50 turns, a summary replaces all but the first message and the last ten.
    Compacts,
    /// Each turn, a random message is rewritten.
    Edits,
    /// Each turn, the oldest messages beyond a hundred are removed.
    Slides,
}

impl Story {
    /// Every story.
    pub const ALL: [Self; 5] = [Self::Grows, Self::Elides, Self::Compacts, Self::Edits, Self::Slides];
}

/// A story and its current message list.
#[derive(Debug)]
pub struct Telling {
    story: Story,
    random: Random,
    turns: u64,
    messages: Vec<Json>,
}

impl Telling {
    /// A list that begins with the system message.
    pub fn new(story: Story, random: Random) -> Self {
        let system = json!({"role": "system", "content": "You book flights. ".repeat(40)});
        Self { story, random, turns: 0, messages: vec![system.into()] }
    }

    /// Adds a request and the tool's answer, and changes the list by the story.
    pub fn add_turn(&mut self) -> &[Json] {
        self.turns += 1;
        let question = self.text(60, 300);
        self.messages.push(json!({"role": "assistant", "content": question}).into());
        let answered = self.text(100, 1200);
        self.messages.push(json!({"role": "tool", "content": answered}).into());
        let last = self.messages.len();
        match self.story {
            Story::Elides if last > 12 => {
                self.messages[last - 11] = json!({"role": "tool", "content": "(omitted)", "turn": self.turns}).into();
            }
            Story::Compacts if self.turns.is_multiple_of(50) => {
                let summary = json!({"role": "user", "content": self.text(500, 1500)});
                self.messages.splice(1..last - 10, [summary.into()]);
            }
            Story::Edits => {
                let at = usize::try_from(self.random.between(0, last as u64)).unwrap_or(0);
                self.messages[at] = json!({"role": "user", "content": self.text(60, 600)}).into();
            }
            Story::Slides if last > 101 => drop(self.messages.drain(1..last - 100)),
            Story::Grows | Story::Elides | Story::Compacts | Story::Slides => {}
        }
        &self.messages
    }

    fn text(&mut self, from: u64, to: u64) -> String {
        let length = self.random.between(from, to);
        let mut text = format!("{} ", self.turns);
        while (text.len() as u64) < length {
            text.push_str(&format!("{:x} ", self.random.number()));
        }
        text
    }
}
