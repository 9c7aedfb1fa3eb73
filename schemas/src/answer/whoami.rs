//! What a client's credential allows.

use super::OrOther;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::symbols;
use serde::{Deserialize, Serialize};

symbols! {
    /// What a request authenticates with. `none`: the server asks for no credentials, and everybody may do everything.
    CredentialKind { Absent = "none", Token = "token", Jwt = "jwt", Certificate = "certificate" }
}

/// The caller of a request, and what its credential allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct WhoAmI {
    /// The kind of its credential.
    pub kind: OrOther<CredentialKind>,
    /// The principal; null without credentials.
    pub principal: Option<String>,
    /// Its scopes; without credentials all of them.
    pub scopes: Vec<String>,
    /// The runs that the scopes are for, as patterns: `*` is all runs, `acme/*` those whose id starts with `acme/`, `acme` that one
    /// run.
    pub runs: Vec<String>,
    /// Whether content is masked in all answers, because the scope `read_content` is missing. With the scope, answers still mask
    /// content by its privacy class unless they are asked not to.
    pub masked: bool,
    /// When the credential expires, RFC 3339; null if it does not.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    pub expires: Option<String>,
}
