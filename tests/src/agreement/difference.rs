//! The first difference between two answers, its path, its run and its record.

use super::about::About;
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
    /// The run and the record. In a box, since a result with this error is returned often.
    pub about: Box<About>,
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
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, position, what, error, log } = self;
        write!(f, "seed {seed}, after event {position}: ")?;
        if let Some(error) = error {
            write!(f, "{error}")?;
        }
        if let Some(Found { question, path, model, product, about }) = what.as_deref() {
            let short = |value: &Value| value.to_string().chars().take(WIDTH).collect::<String>();
            let (model, product) = (short(model), short(product));
            write!(f, "{about}: {question}{path}\n    model   {model}\n    product {product}")?;
        }
        write!(f, "\n    again: RUNLOG_SEED={seed}")?;
        log.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// The first difference of two values.
#[derive(Clone, Debug)]
pub struct First {
    /// The JSON path.
    pub path: String,
    /// The model's value at the path.
    pub model: Value,
    /// The product's value at the path.
    pub product: Value,
    /// The objects around both values.
    pub around: Around,
}

/// The objects around a difference, from the inside.
#[derive(Clone, Debug, Default)]
pub struct Around(Vec<Value>);

impl Around {
    /// Adds an object outside of the others.
    pub fn add(&mut self, object: &Value) {
        if object.is_object() {
            self.0.push(object.clone());
        }
    }

    /// The objects, from the inside.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.0.iter()
    }
}

impl First {
    /// Two values that differ as a whole.
    pub fn whole(model: &Value, product: &Value) -> Self {
        let mut around = Around::default();
        [model, product].into_iter().for_each(|value| around.add(value));
        Self { path: String::new(), model: model.clone(), product: product.clone(), around }
    }

    /// The same difference as a part of two values.
    fn within(mut self, part: impl fmt::Display, model: &Value, product: &Value) -> Self {
        [model, product].into_iter().for_each(|value| self.around.add(value));
        Self { path: format!("/{part}{}", self.path), ..self }
    }
}

/// Finds the first difference of two values.
pub fn first(model: &Value, product: &Value) -> Option<First> {
    let absent = Value::from("(absent)");
    match (model, product) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let member = match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => first(one, other)?,
                    (one, other) => First::whole(one.unwrap_or(&absent), other.unwrap_or(&absent)),
                };
                Some(member.within(name, model, product))
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let mut pairs = one.iter().zip(other).enumerate();
            pairs.find_map(|(at, (one, other))| Some(first(one, other)?.within(at, model, product)))
        }
        (one, other) if one == other => None,
        (Value::Array(one), Value::Array(other)) => {
            // The first different index of two lists of different lengths.
            let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            let [left, right] = [one, other].map(|side| side.get(at).unwrap_or(&absent));
            Some(First::whole(left, right).within(format!("{at} of {} and {}", one.len(), other.len()), model, product))
        }
        _ => Some(First::whole(model, product)),
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
