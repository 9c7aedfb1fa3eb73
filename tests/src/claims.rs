//! Claims that hold on every backend. Each is written once here; the files in `tests/` test it on each backend.

pub mod batches;
pub mod calls;
pub mod cancelled_calls;
pub mod covered_calls;
pub mod decisions;
pub mod gate;
mod held_append;
pub mod interleavings;
pub mod killed_producers;
pub mod killed_server;
pub mod port_bob_core;
pub mod port_codetether;
pub mod port_conformance;
pub mod port_observability;
pub mod records;
pub mod reopen;
pub mod tail_all;
pub mod takeover;
pub mod writing;

/// Each claim of a module as a test, on each of the journals that its line names: constructors of `$world`.
#[macro_export]
macro_rules! claims_on {
    ($world:ty, $module:ident: $($claim:ident: $($journal:ident),+;)*) => {$(
        #[test]
        fn $claim() -> anyhow::Result<()> {
            $($crate::claims::$module::$claim(&<$world>::$journal()?)?;)+
            Ok(())
        }
    )*};
}
