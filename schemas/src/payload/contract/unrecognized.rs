//! Variants that this build does not know.

use crate::{datum, json::Json};

/// A variant that this build does not know, kept unchanged.
pub(super) struct Unrecognized {
    /// The variant's name.
    pub(super) variant: String,
    /// The JSON text of the content if it is separate from the name, otherwise of the whole value.
    pub(super) content: Json,
}
datum!(Unrecognized { variant, content });
