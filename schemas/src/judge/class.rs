//! Whether a pending effect may run again without a decision.

use crate::symbols;

symbols! {
    /// The class of a pending effect. `retry_safe` may run again without a decision. `reconcile_required` may have
    /// happened: an operator decides before it runs again.
    Class { RetrySafe = "retry_safe", ReconcileRequired = "reconcile_required" }
}

/// Returns the class of a pending effect and the reason for it. `has_key`: the effect has a key that is not empty and that answers
/// return.
pub fn class(has_key: bool, cleared: bool, repeatable: bool) -> (Class, &'static str) {
    if cleared {
        (Class::RetrySafe, "resolved as not done")
    } else if repeatable {
        (Class::RetrySafe, "its request says that it is safe to repeat")
    } else if has_key {
        (Class::RetrySafe, "has an idempotency or dedupe key")
    } else {
        (Class::ReconcileRequired, "the effect may have happened and has no idempotency key")
    }
}
