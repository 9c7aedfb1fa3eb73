//! Applies Avro 1.12's "Schema Resolution" to schemas instead of data: searches values of the writer schema that the reader schema
//! cannot read.
//!
//! [`Resolver::matches`] decides, [`Resolver::explain`] returns path and reason. Types may be recursive: during the
//! comparison of a pair of named types, the pair is assumed to match. A result that depends on such an assumption is
//! kept only after the assumption is decided.

use super::{
    incompatibility::{Incompatibility, Rule, broken},
    model::{Body, Field, Logical, Primitive, Schema, Type, unqualified},
};
use std::collections::{HashMap, HashSet};

/// Returns the parts of `old` (the writer schema) that `new` (the reader schema) cannot read.
pub(super) fn check(old: &Schema, new: &Schema) -> Vec<Incompatibility> {
    let mut resolver = Resolver { old, new, settled: HashMap::new(), open: Vec::new() };
    let mut incompatibilities = Vec::new();
    if !resolver.matches(&old.root, &new.root).holds {
        resolver.explain(&old.root, &new.root, &new.root.to_string(), &mut HashSet::new(), &mut incompatibilities);
    }
    incompatibilities
}

/// A pair of named types: the writer's and the reader's.
type Pair<'s> = (&'s str, &'s str);

struct Resolver<'s> {
    old: &'s Schema,
    new: &'s Schema,
    settled: HashMap<Pair<'s>, bool>,
    /// Pairs under comparison, outermost first.
    open: Vec<Pair<'s>>,
}

#[derive(Clone, Copy)]
struct Answer {
    holds: bool,
    /// The outermost open pair that was assumed to match; `usize::MAX` for none.
    leans_on: usize,
}

const YES: Answer = Answer { holds: true, leans_on: usize::MAX };
const NO: Answer = Answer { holds: false, leans_on: usize::MAX };

impl Answer {
    fn and(self, other: impl FnOnce() -> Self) -> Self {
        if !self.holds {
            return self;
        }
        let other = other();
        if !other.holds {
            return NO;
        }
        Self { holds: true, leans_on: self.leans_on.min(other.leans_on) }
    }
}

impl<'s> Resolver<'s> {
    fn matches(&mut self, writer: &'s Type, reader: &'s Type) -> Answer {
        match (writer, reader) {
            (Type::Union(branches), _) => {
                branches.iter().fold(YES, |so_far, branch| so_far.and(|| self.matches(branch, reader)))
            }
            (_, Type::Union(branches)) => {
                branches.iter().map(|branch| self.matches(writer, branch)).find(|answer| answer.holds).unwrap_or(NO)
            }
            (Type::Primitive(from, writer), Type::Primitive(to, reader)) => {
                if promotes(*from, *to) && decimals_agree(writer, reader) { YES } else { NO }
            }
            (Type::Array(writer), Type::Array(reader)) | (Type::Map(writer), Type::Map(reader)) => {
                self.matches(writer, reader)
            }
            (Type::Named(writer), Type::Named(reader)) => self.named(writer, reader),
            _ => NO,
        }
    }

    fn named(&mut self, writer: &'s str, reader: &'s str) -> Answer {
        let pair = (writer, reader);
        if let Some(holds) = self.settled.get(&pair) {
            return if *holds { YES } else { NO };
        }
        if let Some(depth) = self.open.iter().position(|open| *open == pair) {
            return Answer { holds: true, leans_on: depth };
        }
        let depth = self.open.len();
        self.open.push(pair);
        let mut answer = self.bodies(writer, reader);
        self.open.pop();
        if answer.leans_on >= depth {
            answer.leans_on = usize::MAX;
        }
        // A failure despite assumed matches is final. A success is final if it depends on no assumption.
        if !answer.holds || answer.leans_on == usize::MAX {
            self.settled.insert(pair, answer.holds);
        }
        answer
    }

    fn bodies(&mut self, writer: &'s str, reader: &'s str) -> Answer {
        let (Some(old), Some(new)) = (self.old.find_type(writer), self.new.find_type(reader)) else { return NO };
        if !same_name(writer, reader, &new.aliases) {
            return NO;
        }
        match (&old.body, &new.body) {
            (Body::Record(from), Body::Record(to)) => to.iter().fold(YES, |so_far, field| {
                so_far.and(|| match written(from, field) {
                    Some(source) => self.matches(&source.of, &field.of),
                    None if field.default.is_some() => YES,
                    None => NO,
                })
            }),
            (old, new) if leaf(old, new).is_none() => YES,
            _ => NO,
        }
    }

    /// Explains why a pair does not match. A pair of named types is explained at its first occurrence.
    fn explain(
        &mut self,
        writer: &'s Type,
        reader: &'s Type,
        path: &str,
        told: &mut HashSet<Pair<'s>>,
        found: &mut Vec<Incompatibility>,
    ) {
        let mut say = |reason: String| found.push(broken(Rule::Avro, path, reason));
        match (writer, reader) {
            (Type::Union(branches), _) => {
                for (index, branch) in branches.iter().enumerate() {
                    if !self.matches(branch, reader).holds {
                        self.explain(branch, reader, &format!("{path}[{index}]"), told, found);
                    }
                }
            }
            (_, Type::Union(branches)) => match branches.iter().find(|branch| self.akin(writer, branch)) {
                Some(branch) => self.explain(writer, branch, path, told, found),
                None => say(format!("{writer} was written, and no branch of the {reader} can read it")),
            },
            (Type::Array(from), Type::Array(to)) | (Type::Map(from), Type::Map(to)) => {
                self.explain(from, to, &format!("{path}[]"), told, found);
            }
            (Type::Named(from), Type::Named(to)) => {
                if told.insert((from, to)) {
                    self.explain_named(from, to, path, told, found);
                }
            }
            (Type::Primitive(from, _), Type::Primitive(to, _)) if promotes(*from, *to) => {
                say("decimals of different precision or scale".to_owned());
            }
            _ => say(format!("{writer} was written, and {reader} cannot read it")),
        }
    }

    fn explain_named(
        &mut self,
        writer: &'s str,
        reader: &'s str,
        path: &str,
        told: &mut HashSet<Pair<'s>>,
        found: &mut Vec<Incompatibility>,
    ) {
        let (Some(old), Some(new)) = (self.old.find_type(writer), self.new.find_type(reader)) else { return };
        if !same_name(writer, reader, &new.aliases) {
            let reason = format!(
                "{} {writer} was written, and {reader} has neither this name nor an alias for it",
                old.body.what()
            );
            return found.push(broken(Rule::Avro, path, reason));
        }
        let (Body::Record(from), Body::Record(to)) = (&old.body, &new.body) else {
            let reason = leaf(&old.body, &new.body).unwrap_or_default();
            return found.push(broken(Rule::Avro, path, reason));
        };
        for field in to {
            let path = format!("{path}.{}", field.name);
            match written(from, field) {
                Some(source) if self.matches(&source.of, &field.of).holds => {}
                Some(source) => self.explain(&source.of, &field.of, &path, told, found),
                None if field.default.is_some() => {}
                None => found.push(broken(Rule::Avro, &path, "a new field without a default")),
            }
        }
    }

    /// Returns whether `branch` of a union corresponds to `writer`.
    fn akin(&self, writer: &Type, branch: &Type) -> bool {
        match (writer, branch) {
            (Type::Named(from), Type::Named(to)) => {
                self.new.find_type(to).is_some_and(|new| same_name(from, to, &new.aliases))
            }
            (Type::Array(_), Type::Array(_)) | (Type::Map(_), Type::Map(_)) => true,
            (Type::Primitive(from, _), Type::Primitive(to, _)) => from == to,
            _ => false,
        }
    }
}

/// Finds the writer's field for a reader's field: by name, then by alias.
fn written<'f>(fields: &'f [Field], reader: &Field) -> Option<&'f Field> {
    let mut names = std::iter::once(&reader.name).chain(&reader.aliases);
    names.find_map(|name| fields.iter().find(|field| field.name == *name))
}

/// Returns whether names match without their namespaces, or by an alias of the reader's type.
fn same_name(writer: &str, reader: &str, aliases: &[String]) -> bool {
    unqualified(writer) == unqualified(reader) || aliases.iter().any(|alias| alias == writer)
}

/// Returns the mismatch of two named types without parts, if any.
fn leaf(old: &Body, new: &Body) -> Option<String> {
    match (old, new) {
        (Body::Enum { symbols: from, .. }, Body::Enum { symbols: to, default }) => {
            let missing: Vec<&str> = from.iter().filter(|symbol| !to.contains(symbol)).map(String::as_str).collect();
            (!missing.is_empty() && default.is_none())
                .then(|| format!("symbols that were written are gone, and there is no default: {}", missing.join(", ")))
        }
        (Body::Fixed { size: from, logical: a }, Body::Fixed { size: to, logical: b }) => match () {
            () if from != to => {
                Some(format!("fixed of {from} bytes was written, and fixed of {to} bytes cannot read it"))
            }
            () if !decimals_agree(a, b) => Some("decimals of different precision or scale".to_owned()),
            () => None,
        },
        _ => Some(format!("{} was written, and {} cannot read it", old.what(), new.what())),
    }
}

fn promotes(from: Primitive, to: Primitive) -> bool {
    use Primitive::{Bytes, Double, Float, Int, Long, String};
    from == to
        || matches!(
            (from, to),
            (Int, Long | Float | Double) | (Long, Float | Double) | (Float, Double) | (String, Bytes) | (Bytes, String)
        )
}

fn decimals_agree(writer: &Logical, reader: &Logical) -> bool {
    match (writer.decimal, reader.decimal) {
        (Some(writer), Some(reader)) => writer == reader,
        _ => true,
    }
}
