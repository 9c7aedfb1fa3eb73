//! Records and bytes of every type in the schema.

pub(crate) mod every;
pub(crate) mod full;
pub(crate) mod generate;
pub(crate) mod named;
pub(crate) mod sample;
