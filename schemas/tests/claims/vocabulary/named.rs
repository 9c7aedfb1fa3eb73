//! The schema's types by name, read from the `.avsc` file alone.

use std::{collections::HashMap, sync::LazyLock};

use apache_avro::Schema;
use runlog_schemas::schema;

/// The schema, and its named types by their names without namespace, of which it has one.
pub(crate) struct Named {
    pub(crate) root: Schema,
    pub(crate) types: HashMap<String, Schema>,
}

pub(crate) static NAMED: LazyLock<Named> = LazyLock::new(|| {
    let root = Schema::parse_str(schema::JOURNAL_RECORD).unwrap();
    let mut types = HashMap::new();
    collect(&root, &mut types);
    Named { root, types }
});

impl Named {
    /// A type by name; references are followed.
    pub(crate) fn follow<'a>(&'a self, schema: &'a Schema) -> &'a Schema {
        match schema {
            Schema::Ref { name } => &self.types[name.name()],
            other => other,
        }
    }
}

/// A named type's name.
pub(crate) fn name(schema: &Schema) -> Option<&str> {
    match schema {
        Schema::Record(record) => Some(record.name.name()),
        Schema::Enum(symbols) => Some(symbols.name.name()),
        Schema::Fixed(fixed) => Some(fixed.name.name()),
        Schema::Ref { name } => Some(name.name()),
        _ => None,
    }
}

fn collect(schema: &Schema, into: &mut HashMap<String, Schema>) {
    if let (Some(name), false) = (name(schema), matches!(schema, Schema::Ref { .. })) {
        into.insert(name.to_owned(), schema.clone());
    }
    match schema {
        Schema::Record(record) => record.fields.iter().for_each(|field| collect(&field.schema, into)),
        Schema::Array(array) => collect(&array.items, into),
        Schema::Union(union) => union.variants().iter().for_each(|variant| collect(variant, into)),
        _ => {}
    }
}
