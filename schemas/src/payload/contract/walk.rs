//! Walks an Avro datum by its shape.

use super::{shape::Shape, unrecognized::Unrecognized};
use crate::datum::{self, Datum, Input, Malformed, put_bytes, put_long};

/// Checks one value, and appends its canonical encoding to `out` if there is one.
pub(super) fn copy(shape: &Shape, input: &mut Input<'_>, out: &mut Option<Vec<u8>>) -> Result<(), Malformed> {
    match shape {
        Shape::Bool => put(&bool::take(input)?, out),
        Shape::Int => put(&u32::take(input)?, out),
        Shape::Long => put(&u64::take(input)?, out),
        Shape::Text => {
            let bytes = input.text_bytes()?;
            out.iter_mut().for_each(|out| put_bytes(bytes, out));
        }
        Shape::Symbols(symbols) => {
            let symbol = input.length()?;
            if symbol >= symbols.len() {
                return Err(input.malformed("no such symbol"));
            }
            put_index(symbol, out);
        }
        Shape::List(shape) => return copy_list(shape, input, out),
        Shape::Maybe(shape) => {
            let is_null = input.zero() || input.branch(2)? == 0;
            put_index((!is_null).into(), out);
            if !is_null {
                return copy(shape, input, out);
            }
        }
        Shape::Record(fields) => return fields.iter().try_for_each(|field| copy(field.shape, input, out)),
        Shape::Variants(_, variants) => {
            let branch = input.length()?;
            put_index(branch, out);
            let Some(at) = branch.checked_sub(1) else { return copy_unrecognized(input, out) };
            let (_, shape) = variants.get(at).ok_or_else(|| input.malformed("no such union branch"))?;
            return copy(shape, input, out);
        }
    }
    Ok(())
}

fn copy_list(shape: &Shape, input: &mut Input<'_>, out: &mut Option<Vec<u8>>) -> Result<(), Malformed> {
    let (mut count, mut items) = (0, out.as_ref().map(|_| Vec::new()));
    if !input.zero() {
        datum::blocks(input, |input| {
            count += 1;
            copy(shape, input, &mut items)
        })?;
    }
    if let (Some(out), Some(items)) = (out, items) {
        if count > 0 {
            put_long(count, out);
            out.extend(items);
        }
        put_long(0, out);
    }
    Ok(())
}

fn copy_unrecognized(input: &mut Input<'_>, out: &mut Option<Vec<u8>>) -> Result<(), Malformed> {
    match out {
        Some(out) => Unrecognized::take(input)?.put(out),
        None => Unrecognized::skip(input)?,
    }
    Ok(())
}

fn put(value: &impl Datum, out: &mut Option<Vec<u8>>) {
    out.iter_mut().for_each(|out| value.put(out));
}

fn put_index(index: usize, out: &mut Option<Vec<u8>>) {
    out.iter_mut().for_each(|out| put_long(index.cast_signed() as i64, out));
}

/// Returns the text at a path. `None` if it is absent, or not a text, symbol, variant or number.
pub(super) fn find(shape: &Shape, input: &mut Input<'_>, path: &str) -> Option<String> {
    match shape {
        Shape::Maybe(shape) => {
            if input.branch(2).ok()? == 1 {
                find(shape, input, path)
            } else {
                None
            }
        }
        Shape::Record(fields) => {
            let (name, rest) = path.split_once('/').unwrap_or((path, ""));
            for field in fields {
                if *field.name == *name {
                    return find(field.shape, input, rest);
                }
                copy(field.shape, input, &mut None).ok()?;
            }
            None
        }
        Shape::Variants(_, variants) => match (input.length().ok()?.checked_sub(1), path) {
            (None, "") => String::take(input).ok(),
            (None, _) => None,
            (Some(at), "") => Some((*variants.get(at)?.0).to_owned()),
            (Some(at), _) => find(variants.get(at)?.1, input, path),
        },
        Shape::Text => String::take(input).ok(),
        Shape::Symbols(symbols) => symbols.get(input.length().ok()?).map(|symbol| (**symbol).to_owned()),
        Shape::Int | Shape::Long => input.long().ok().map(|number| number.to_string()),
        Shape::Bool | Shape::List(_) => None,
    }
}
