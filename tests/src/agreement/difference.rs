//! The first difference between two answers, and its path.

use serde_json::Value;
use std::fmt;

/// Characters shown of each answer.
const WIDTH: usize = 2000;

/// Two answers that are not equal.
#[derive(Clone, Debug)]
pub struct Found {
    /// The question.
    pub question: String,
    /// The JSON path in the answers.
    pub path: String,
    /// The model's value at the path.
    pub model: Value,
    /// The product's value at the path.
    pub product: Value,
}

impl Found {
    /// The same difference, with the earlier position in its question.
    #[must_use]
    pub fn as_of(self, partition: u32, offset: u64) -> Self {
        Self { question: format!("{} as of {partition}:{offset}", self.question), ..self }
    }
}

/// The first difference of a seed.
#[derive(Clone, Debug)]
pub struct Difference {
    seed: u64,
    position: usize,
    what: Option<Box<Found>>,
    error: Option<String>,
    /// The events of the history, if they do not follow from the seed alone.
    log: Vec<String>,
}

impl Difference {
    /// A difference after the event at `position` of a seed's history.
    pub fn after_event(seed: u64, position: usize) -> Self {
        Self { seed, position, what: None, error: None, log: Vec::new() }
    }

    /// Different answers.
    #[must_use]
    pub fn over(self, found: Found) -> Self {
        Self { what: Some(Box::new(found)), ..self }
    }

    /// Adds the events of the history, which do not follow from the seed alone.
    #[must_use]
    pub fn among(self, log: Vec<String>) -> Self {
        Self { log, ..self }
    }

    /// The product failed.
    #[must_use]
    pub fn failed(self, error: &anyhow::Error) -> Self {
        Self { error: Some(format!("{error:#}")), ..self }
    }

    /// The question with different answers; `None` if the product failed.
    pub fn question(&self) -> Option<&str> {
        self.what.as_ref().map(|found| found.question.as_str())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, position, what, error, log } = self;
        if !log.is_empty() {
            writeln!(f, "{}", log.join("\n"))?;
        }
        write!(f, "seed {seed}, after event {position}: ")?;
        if let Some(error) = error {
            write!(f, "{error}")?;
        }
        if let Some(Found { question, path, model, product }) = what.as_deref() {
            let short = |value: &Value| value.to_string().chars().take(WIDTH).collect::<String>();
            let (model, product) = (short(model), short(product));
            write!(f, "{question}{path}\n    model   {model}\n    product {product}")?;
        }
        write!(f, "\n    again: RUNLOG_SEED={seed}")
    }
}

/// The first difference of two values: its path and both sides.
pub fn first(model: &Value, product: &Value) -> Option<(String, Value, Value)> {
    let sides = |path: &str| Some((path.to_owned(), model.clone(), product.clone()));
    match (model, product) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            names.into_iter().find_map(|name| match (one.get(name), other.get(name)) {
                (Some(one), Some(other)) => first(one, other).map(|(path, a, b)| (format!("/{name}{path}"), a, b)),
                (one, other) => {
                    let shown = |side: Option<&Value>| side.cloned().unwrap_or_else(|| "(absent)".into());
                    Some((format!("/{name}"), shown(one), shown(other)))
                }
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs
                .filter_map(|(at, (one, other))| first(one, other).map(|(path, a, b)| (format!("/{at}{path}"), a, b)))
                .next()
        }
        (one, other) if one == other => None,
        (Value::Array(one), Value::Array(other)) => {
            // The first different index of two lists of different lengths.
            let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            let shown = |side: &[Value]| side.get(at).cloned().unwrap_or_else(|| "(absent)".into());
            Some((format!("/{at} of {} and {}", one.len(), other.len()), shown(one), shown(other)))
        }
        _ => sides(""),
    }
}

/// Removes members that the writer did not send from an answered payload: defaults and derived members. Restores
/// members that the answer drops or has outside of the payload.
pub fn as_given(given: &Value, answered: &Value) -> Value {
    match (given, answered) {
        (Value::Object(given), Value::Object(answered)) => {
            let member = |(name, value): (&String, &Value)| {
                // An empty list is absence.
                let absent = || if value.as_array().is_some_and(Vec::is_empty) { value.clone() } else { Value::Null };
                (name.clone(), answered.get(name).map_or_else(absent, |answered| as_given(value, answered)))
            };
            Value::Object(given.iter().map(member).collect())
        }
        (Value::Array(given), Value::Array(answered)) if given.len() == answered.len() => {
            given.iter().zip(answered).map(|(given, answered)| as_given(given, answered)).collect()
        }
        // The answer has a symbol of a later version outside of the payload.
        (Value::String(_), Value::String(word)) if word == "unrecognized" => given.clone(),
        _ => answered.clone(),
    }
}
