//! Records and bytes of everything that the schema has.

pub(crate) mod every;
pub(crate) mod full;
pub(crate) mod generate;
pub(crate) mod named;
pub(crate) mod sample;
