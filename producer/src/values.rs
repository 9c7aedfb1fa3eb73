//! The JSON of an agent's values, without a silent change. serde_json writes NaN and the infinities as null, so two different calls
//! would have one fingerprint.

use runlog_schemas::{canonical, json::Json};
use serde::{
    Serialize,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant, Serializer,
    },
};
use std::{any::type_name, cell::RefCell, fmt::Display};

/// The JSON of an effect's result. NaN and the infinities are the texts `NaN`, `Infinity` and `-Infinity`, as in the other clients.
/// `Json::of` and `serde_json::json!` write them as null, as does a `RawValue` that was made of one.
///
/// Errors: a value that has no JSON, such as a map whose keys are lists.
pub fn result<T: Serialize + ?Sized>(value: &T) -> Result<Json, serde_json::Error> {
    json(value, NotFinite::Text)
}

/// Serialises a set in the order of its elements' canonical JSON, so that it is the same in every process:
/// `#[serde(serialize_with = "runlog_producer::values::sorted")]` for a `HashSet` in arguments.
pub fn sorted<'a, C, T, S>(set: &'a C, serializer: S) -> Result<S::Ok, S::Error>
where
    &'a C: IntoIterator<Item = &'a T>,
    T: Serialize + 'a,
    S: Serializer,
{
    let mut elements = Vec::new();
    for element in set {
        let text = serde_json::to_string(element).map_err(S::Error::custom)?;
        elements.push((canonical::canonicalize(&text).map_err(S::Error::custom)?, element));
    }
    elements.sort_by(|(one, _), (other, _)| one.cmp(other));
    serializer.collect_seq(elements.into_iter().map(|(_, element)| element))
}

/// The JSON of a value that must come back as it is: a message or a state of a checkpoint. Arguments and turns are made with it.
///
/// Errors, which name the place: NaN, the infinities and other numbers beyond the range of a double, and two members of one
/// name. Also a type with a `HashSet` among its parameters.
pub fn exact<T: Serialize + ?Sized>(value: &T) -> Result<Json, serde_json::Error> {
    let name = type_name::<T>();
    if name.contains("::HashSet<") {
        return Err(serde_json::Error::custom(format!(
            "{name} has another order in each process: use a `BTreeSet`, or `runlog_producer::values::sorted` in a struct"
        )));
    }
    let json = json(value, NotFinite::Refused)?;
    match canonical::ambiguity(json.as_str()) {
        Some((what, pointer)) => Err(serde_json::Error::custom(format!("{what}, at {pointer:?}"))),
        None => Ok(json),
    }
}

fn json<T: Serialize + ?Sized>(value: &T, not_finite: NotFinite) -> Result<Json, serde_json::Error> {
    let place = RefCell::default();
    Json::of(&Part { value, context: Context { place: &place, not_finite } })
}

/// What becomes of NaN and the infinities.
#[derive(Clone, Copy)]
enum NotFinite {
    Refused,
    Text,
}

#[derive(Clone, Copy)]
struct Context<'p> {
    /// The path of the value that is serialised, such as `.to`, `[2]`.
    place: &'p RefCell<Vec<String>>,
    not_finite: NotFinite,
}

impl Context<'_> {
    /// Serialises a part at a step from the present place. The place stays as it is after an error, which ends everything.
    fn inside<R, E>(&self, step: String, serialize: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        self.place.borrow_mut().push(step);
        let serialized = serialize()?;
        self.place.borrow_mut().pop();
        Ok(serialized)
    }
}

/// A value or a part of it.
struct Part<'v, 'p, T: ?Sized> {
    value: &'v T,
    context: Context<'p>,
}

impl<T: Serialize + ?Sized> Serialize for Part<'_, '_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Checked { inner: serializer, context: self.context })
    }
}

/// A serializer that checks numbers.
struct Checked<'p, S> {
    inner: S,
    context: Context<'p>,
}

impl<'p, S: Serializer> Checked<'p, S> {
    fn not_finite(self, text: &str) -> Result<S::Ok, S::Error> {
        match self.context.not_finite {
            NotFinite::Text => self.inner.serialize_str(text),
            NotFinite::Refused => {
                let place = self.context.place.borrow().concat();
                Err(S::Error::custom(format_args!("{text} has no JSON, at ${place}")))
            }
        }
    }

    fn parts<C>(context: Context<'p>, inner: Result<C, S::Error>) -> Result<Parts<'p, C>, S::Error> {
        Ok(Parts { inner: inner?, context, is_variant: false, next: 0, key: String::new() })
    }

    /// The parts of a variant, which are one step deeper.
    fn variant<C>(context: Context<'p>, variant: &str, inner: Result<C, S::Error>) -> Result<Parts<'p, C>, S::Error> {
        context.place.borrow_mut().push(format!(".{variant}"));
        Ok(Parts { is_variant: true, ..Self::parts(context, inner)? })
    }
}

/// The text of NaN or an infinity; `None` for any other number.
fn text(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_finite() => None,
        _ if value.is_nan() => Some("NaN"),
        _ if value > 0.0 => Some("Infinity"),
        _ => Some("-Infinity"),
    }
}

macro_rules! unchanged {
    ($($name:ident: $kind:ty),*) => {$(
        fn $name(self, value: $kind) -> Result<S::Ok, S::Error> {
            self.inner.$name(value)
        }
    )*};
}

impl<'p, S: Serializer> Serializer for Checked<'p, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Parts<'p, S::SerializeSeq>;
    type SerializeTuple = Parts<'p, S::SerializeTuple>;
    type SerializeTupleStruct = Parts<'p, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Parts<'p, S::SerializeTupleVariant>;
    type SerializeMap = Parts<'p, S::SerializeMap>;
    type SerializeStruct = Parts<'p, S::SerializeStruct>;
    type SerializeStructVariant = Parts<'p, S::SerializeStructVariant>;

    unchanged!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str
    );

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        match text(value.into()) {
            None => self.inner.serialize_f32(value),
            Some(text) => self.not_finite(text),
        }
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        match text(value) {
            None => self.inner.serialize_f64(value),
            Some(text) => self.not_finite(text),
        }
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&Part { value, context: self.context })
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_unit_variant(self, name: &'static str, index: u32, variant: &'static str) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_newtype_struct(name, &Part { value, context: self.context })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let Self { inner, context } = self;
        let serialize = || inner.serialize_newtype_variant(name, index, variant, &Part { value, context });
        context.inside(format!(".{variant}"), serialize)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Self::parts(self.context, self.inner.serialize_seq(length))
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        Self::parts(self.context, self.inner.serialize_tuple(length))
    }

    fn serialize_tuple_struct(self, name: &'static str, length: usize) -> Result<Self::SerializeTupleStruct, S::Error> {
        Self::parts(self.context, self.inner.serialize_tuple_struct(name, length))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        Self::variant(self.context, variant, self.inner.serialize_tuple_variant(name, index, variant, length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Self::parts(self.context, self.inner.serialize_map(length))
    }

    fn serialize_struct(self, name: &'static str, length: usize) -> Result<Self::SerializeStruct, S::Error> {
        Self::parts(self.context, self.inner.serialize_struct(name, length))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        Self::variant(self.context, variant, self.inner.serialize_struct_variant(name, index, variant, length))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The parts of a list, a map or a struct.
struct Parts<'p, C> {
    inner: C,
    context: Context<'p>,
    /// Whether the variant's name is a step of the place.
    is_variant: bool,
    /// The index of the next element.
    next: usize,
    /// The step to the value of the last key.
    key: String,
}

impl<C> Parts<'_, C> {
    /// Leaves the place of the parts.
    fn leave(self) -> C {
        if self.is_variant {
            self.context.place.borrow_mut().pop();
        }
        self.inner
    }
}

macro_rules! elements {
    ($($kind:ident: $name:ident),*) => {$(
        impl<C: $kind> $kind for Parts<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $name<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let Self { inner, context, next, .. } = self;
                let step = format!("[{next}]");
                *next += 1;
                context.inside(step, || inner.$name(&Part { value, context: *context }))
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.leave().end()
            }
        }
    )*};
}
elements!(
    SerializeSeq: serialize_element, SerializeTuple: serialize_element, SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
);

macro_rules! fields {
    ($($kind:ident),*) => {$(
        impl<C: $kind> $kind for Parts<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), C::Error> {
                let Self { inner, context, .. } = self;
                context.inside(format!(".{key}"), || inner.serialize_field(key, &Part { value, context: *context }))
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(key)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.leave().end()
            }
        }
    )*};
}
fields!(SerializeStruct, SerializeStructVariant);

impl<C: SerializeMap> SerializeMap for Parts<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        // A key that is no text or number is refused by serde_json itself.
        let text = serde_json::to_value(key).unwrap_or_default();
        self.key = text.as_str().map_or_else(|| format!("[{text}]"), |text| format!(".{text}"));
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let Self { inner, context, key, .. } = self;
        context.inside(std::mem::take(key), || inner.serialize_value(&Part { value, context: *context }))
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::id::Fingerprint;
    use serde_json::{json, value::RawValue};
    use std::collections::{BTreeMap, HashMap, HashSet};

    #[derive(Clone, Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Way {
        By(f32),
        Between(u8, f64),
        At { height: Option<f64> },
    }

    #[derive(Clone, Serialize)]
    struct Trip {
        to: Vec<BTreeMap<String, f64>>,
        way: Way,
        #[serde(flatten)]
        more: HashMap<String, (i128, f64)>,
        #[serde(serialize_with = "sorted")]
        tags: HashSet<String>,
        raw: Box<RawValue>,
    }

    fn trip() -> Trip {
        Trip {
            to: vec![BTreeMap::new(), [("when".to_owned(), 1.5)].into()],
            way: Way::By(0.1),
            more: [("far".to_owned(), (i128::MAX, -0.0))].into(),
            tags: ["b", "a", "c"].map(str::to_owned).into(),
            raw: RawValue::from_string("1.10".to_owned()).unwrap(),
        }
    }

    #[test]
    fn what_has_no_exact_json_is_refused_in_arguments_with_its_place() {
        let refused = |change: &dyn Fn(&mut Trip)| {
            let mut trip = trip();
            change(&mut trip);
            exact(&trip).unwrap_err().to_string()
        };
        let when = |trip: &mut Trip| trip.to[1] = [("when".to_owned(), f64::NAN)].into();
        assert_eq!(refused(&when), "NaN has no JSON, at $.to[1].when");
        assert_eq!(refused(&|trip| trip.way = Way::By(f32::INFINITY)), "Infinity has no JSON, at $.way.by");
        let far = |trip: &mut Trip| trip.more = [("far".to_owned(), (0, f64::NEG_INFINITY))].into();
        assert_eq!(refused(&far), "-Infinity has no JSON, at $.far[1]");
        let at = |trip: &mut Trip| trip.way = Way::At { height: Some(f64::NAN) };
        assert_eq!(refused(&at), "NaN has no JSON, at $.way.at.height");
        assert_eq!(refused(&|trip| trip.way = Way::Between(0, f64::NAN)), "NaN has no JSON, at $.way.between[1]");
        let way = |trip: &mut Trip| trip.more = [("way".to_owned(), (0, 0.0))].into();
        assert_eq!(refused(&way), "two members of one object have this name, at \"/way\"");
    }

    #[test]
    fn a_variant_leaves_the_place_of_its_neighbour() {
        let ways = [Way::Between(0, 1.0), Way::At { height: None }, Way::By(f32::NAN)];
        assert_eq!(exact(&ways).unwrap_err().to_string(), "NaN has no JSON, at $[2].by");
    }

    #[test]
    fn a_number_that_is_not_finite_is_text_in_a_result() {
        let value = (f64::NAN, [f32::INFINITY, f32::NEG_INFINITY], Some(1.0));
        assert_eq!(result(&value).unwrap().as_str(), r#"["NaN",["Infinity","-Infinity"],1.0]"#);
    }

    #[test]
    fn every_other_value_has_the_json_that_serde_json_writes() {
        for value in [trip(), Trip { way: Way::At { height: None }, ..trip() }] {
            let expected = Json::of(&value).unwrap();
            assert_eq!((exact(&value).unwrap(), result(&value).unwrap()), (expected.clone(), expected));
        }
        let value = json!({ "n": 12345678901234567890_u64, "x": [null, true, "é", 1.5e300], "": {} });
        assert_eq!(exact(&value).unwrap().as_str(), value.to_string());
    }

    #[test]
    fn the_order_of_a_hash_map_is_not_in_the_fingerprint() {
        let texts: HashSet<String> = (0..20)
            .map(|_| exact(&(0..9).map(|n| (n.to_string(), n)).collect::<HashMap<_, _>>()).unwrap().as_str().to_owned())
            .collect();
        let fingerprints: HashSet<_> = texts.iter().map(|text| Fingerprint::of_call("pay", text).unwrap()).collect();
        assert!(texts.len() > 1 && fingerprints.len() == 1, "{texts:?} {fingerprints:?}");
    }

    #[test]
    fn a_set_has_one_order_in_arguments() {
        assert!(exact(&trip()).unwrap().as_str().contains(r#""tags":["a","b","c"]"#));
        let refused = exact(&[HashSet::from([1])]).unwrap_err().to_string();
        assert!(refused.contains("another order in each process"), "{refused}");
    }
}
