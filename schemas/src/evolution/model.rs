//! A parsed schema for comparisons. Named types are referenced by full name, so that recursion needs no special case and
//! references and definitions look alike.

use apache_avro::{
    Schema as Avro,
    schema::{Aliases, DecimalSchema, FixedSchema, InnerDecimalSchema, Name, RecordSchema, UuidSchema},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

/// Avro's primitive types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
}

/// The use of a type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Primitive(Primitive, Logical),
    Array(Box<Type>),
    Map(Box<Type>),
    Union(Vec<Type>),
    /// A named type, by its full name.
    Named(String),
}

/// The logical type of a type. Avro's resolution checks only decimals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Logical {
    pub(super) name: Option<&'static str>,
    /// Precision and scale.
    pub(super) decimal: Option<(usize, usize)>,
}

/// A named type.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// Other full names of the type.
    pub(super) aliases: Vec<String>,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Record(Vec<Field>),
    Enum { symbols: Vec<String>, default: Option<String> },
    Fixed { size: usize, logical: Logical },
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) default: Option<Value>,
    pub(super) of: Type,
}

/// A schema.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    pub(super) root: Type,
    pub(super) named: BTreeMap<String, Named>,
}

impl Schema {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let avro = Avro::parse_str(text).map_err(|error| error.to_string())?;
        let mut named = BTreeMap::new();
        let root = gather(&avro, &mut named);
        Ok(Self { root, named })
    }

    /// Returns the full name of the schema's top-level type, if it has a name.
    pub(super) fn root_name(&self) -> Option<&str> {
        if let Type::Named(name) = &self.root { Some(name) } else { None }
    }

    /// Returns the type with this name. The parser ensures that it exists.
    pub(super) fn find_type(&self, name: &str) -> Option<&Named> {
        self.named.get(name)
    }
}

impl Body {
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Record(_) => "record",
            Self::Enum { .. } => "enum",
            Self::Fixed { .. } => "fixed",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primitive(primitive, _) => f.write_str(match primitive {
                Primitive::Null => "null",
                Primitive::Boolean => "boolean",
                Primitive::Int => "int",
                Primitive::Long => "long",
                Primitive::Float => "float",
                Primitive::Double => "double",
                Primitive::Bytes => "bytes",
                Primitive::String => "string",
            }),
            Self::Array(items) => write!(f, "array of {items}"),
            Self::Map(values) => write!(f, "map of {values}"),
            Self::Union(branches) => {
                let names: Vec<String> = branches.iter().map(ToString::to_string).collect();
                write!(f, "union of {}", names.join(", "))
            }
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// Returns the name after the last dot.
pub(super) fn unqualified(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Collects the named types that `avro` defines, and returns its own type.
fn gather(avro: &Avro, named: &mut BTreeMap<String, Named>) -> Type {
    let plain = |primitive| Type::Primitive(primitive, Logical::default());
    let as_int = |name| Type::Primitive(Primitive::Int, Logical { name: Some(name), decimal: None });
    let as_long = |name| Type::Primitive(Primitive::Long, Logical { name: Some(name), decimal: None });
    let uuid = || Logical { name: Some("uuid"), decimal: None };
    match avro {
        Avro::Null => plain(Primitive::Null),
        Avro::Boolean => plain(Primitive::Boolean),
        Avro::Int => plain(Primitive::Int),
        Avro::Long => plain(Primitive::Long),
        Avro::Float => plain(Primitive::Float),
        Avro::Double => plain(Primitive::Double),
        Avro::Bytes => plain(Primitive::Bytes),
        Avro::String => plain(Primitive::String),
        Avro::Date => as_int("date"),
        Avro::TimeMillis => as_int("time-millis"),
        Avro::TimeMicros => as_long("time-micros"),
        Avro::TimestampMillis => as_long("timestamp-millis"),
        Avro::TimestampMicros => as_long("timestamp-micros"),
        Avro::TimestampNanos => as_long("timestamp-nanos"),
        Avro::LocalTimestampMillis => as_long("local-timestamp-millis"),
        Avro::LocalTimestampMicros => as_long("local-timestamp-micros"),
        Avro::LocalTimestampNanos => as_long("local-timestamp-nanos"),
        Avro::BigDecimal => Type::Primitive(Primitive::Bytes, Logical { name: Some("big-decimal"), decimal: None }),
        Avro::Uuid(UuidSchema::String) => Type::Primitive(Primitive::String, uuid()),
        Avro::Uuid(UuidSchema::Bytes) => Type::Primitive(Primitive::Bytes, uuid()),
        Avro::Uuid(UuidSchema::Fixed(of)) => fixed(of, uuid(), named),
        Avro::Duration(of) => fixed(of, Logical { name: Some("duration"), decimal: None }, named),
        Avro::Decimal(DecimalSchema { precision, scale, inner }) => {
            let logical = Logical { name: Some("decimal"), decimal: Some((*precision, *scale)) };
            match inner {
                InnerDecimalSchema::Bytes => Type::Primitive(Primitive::Bytes, logical),
                InnerDecimalSchema::Fixed(of) => fixed(of, logical, named),
            }
        }
        Avro::Fixed(of) => fixed(of, Logical::default(), named),
        Avro::Array(of) => Type::Array(Box::new(gather(&of.items, named))),
        Avro::Map(of) => Type::Map(Box::new(gather(&of.types, named))),
        Avro::Union(of) => Type::Union(of.variants().iter().map(|branch| gather(branch, named)).collect()),
        Avro::Enum(of) => {
            let body = Body::Enum { symbols: of.symbols.clone(), default: of.default.clone() };
            define(&of.name, &of.aliases, body, named)
        }
        Avro::Record(of) => record(of, named),
        Avro::Ref { name } => Type::Named(name.fullname(None)),
    }
}

fn record(of: &RecordSchema, named: &mut BTreeMap<String, Named>) -> Type {
    let mut fields = Vec::with_capacity(of.fields.len());
    for field in &of.fields {
        fields.push(Field {
            name: field.name.clone(),
            aliases: field.aliases.clone(),
            default: field.default.clone(),
            of: gather(&field.schema, named),
        });
    }
    define(&of.name, &of.aliases, Body::Record(fields), named)
}

fn fixed(of: &FixedSchema, logical: Logical, named: &mut BTreeMap<String, Named>) -> Type {
    define(&of.name, &of.aliases, Body::Fixed { size: of.size, logical }, named)
}

fn define(name: &Name, aliases: &Aliases, body: Body, named: &mut BTreeMap<String, Named>) -> Type {
    let full = name.fullname(None);
    let aliases = aliases.iter().flatten().map(|alias| alias.fullname(name.namespace())).collect();
    named.insert(full.clone(), Named { aliases, body });
    Type::Named(full)
}
