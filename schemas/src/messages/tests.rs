use super::*;
use proptest::prelude::*;

fn texts(list: &[&str]) -> Vec<Json> {
    // Long enough that a reference to a base is shorter.
    list.iter().map(|text| Json::from(serde_json::Value::from(text.repeat(100)))).collect()
}

/// Builds the list from a change, like a reader.
fn read(base: &[Json], change: &Change) -> Vec<Json> {
    let base = if change.on_base { base } else { &[] };
    let spans = resolve(base.len() as u64, change.messages.len() as u64, &change.spans).unwrap();
    spans.iter().flat_map(|span| span.slice(if span.from_base { base } else { &change.messages })).cloned().collect()
}

fn base(from: u64, count: u64) -> MessageSpan {
    MessageSpan { from_base: true, from, count }
}

fn own(from: u64, count: u64) -> MessageSpan {
    MessageSpan { from_base: false, from, count }
}

#[test]
fn a_longer_list_adds_its_new_messages_without_spans() {
    let list = MessageList::new(texts(&["a", "b"]));
    let change = list.change(&texts(&["a", "b", "c"]));
    assert_eq!((change.on_base, change.messages, change.spans), (true, texts(&["c"]), vec![]));
}

#[test]
fn an_edit_a_removal_and_a_move_add_only_new_messages() {
    let list = MessageList::new(texts(&["a", "b", "c", "d", "e"]));
    for (next, brought, spans) in [
        (vec!["a", "b", "X", "d", "e"], vec!["X"], vec![base(0, 2), own(0, 1), base(3, 2)]),
        (vec!["a", "d", "e", "f"], vec!["f"], vec![base(0, 1), base(3, 2), own(0, 1)]),
        (vec!["S", "d", "e"], vec!["S"], vec![own(0, 1), base(3, 2)]),
        (vec!["d", "e", "a", "b", "Y"], vec!["Y"], vec![base(3, 2), base(0, 2), own(0, 1)]),
        (vec!["b", "c", "d", "e", "f"], vec!["f"], vec![base(1, 4), own(0, 1)]),
        (vec!["a", "b"], vec![], vec![base(0, 2)]),
    ] {
        let next = texts(&next);
        let change = list.change(&next);
        assert_eq!((&change.messages, &change.spans), (&texts(&brought), &spans));
        assert_eq!((read(&list.messages, &change), change.list), (next.clone(), MessageList::new(next)));
    }
}

#[test]
fn a_change_that_does_not_pay_is_whole() {
    let list = MessageList::new(texts(&["a", "b"]));
    let next = texts(&["c", "d"]);
    let change = list.change(&next);
    assert_eq!((change.on_base, &change.messages, &change.spans), (false, &next, &vec![]));
    // The reference to the base is longer than the saved messages.
    let short: Vec<Json> = [1, 2].map(serde_json::Value::from).map(Json::from).to_vec();
    assert!(!MessageList::new(short.clone()).change(&short).on_base);
}

#[test]
fn a_span_outside_of_its_list_does_not_resolve() {
    for spans in [vec![base(0, 0)], vec![base(2, 2)], vec![own(1, 1)], vec![base(u64::MAX, 2)], vec![base(0, u64::MAX)]]
    {
        assert_eq!(resolve(3, 1, &spans), None, "{spans:?}");
    }
    assert_eq!(resolve(3, 1, &[base(1, 2), own(0, 1), base(0, 1)]).map(|spans| spans.len()), Some(3));
    assert_eq!(resolve(0, 2, &[]), Some(vec![own(0, 2)]));
    assert_eq!(resolve(MESSAGES_MAX, 0, &[]).map(|spans| spans.len()), Some(1));
    assert_eq!(resolve(MESSAGES_MAX, 1, &[]), None);
    assert_eq!(resolve(MESSAGES_MAX / 2 + 1, 0, &[base(0, MESSAGES_MAX / 2 + 1); 2]), None);
}

proptest! {
    /// Generates messages from few letters, so that they repeat: with copied and with shared texts.
    #[test]
    fn every_change_reads_as_the_list_that_was_given(
        lists in proptest::collection::vec(proptest::collection::vec((0u8..8, any::<bool>()), 0..24), 1..8),
    ) {
        let shared: Vec<Json> = texts(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        let mut before = MessageList::default();
        for list in lists {
            let next: Vec<Json> = list.iter().map(|(letter, copied)| {
                let message = &shared[usize::from(*letter)];
                if *copied { Json::parse(message.as_str()).unwrap() } else { message.clone() }
            }).collect();
            let change = before.change(&next);
            prop_assert_eq!(&read(&before.messages, &change), &next);
            prop_assert_eq!(&change.list, &MessageList::new(next.clone()));
            before = change.list;
        }
    }
}
