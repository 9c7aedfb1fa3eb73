//! The permissions of a client's credential.

#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{or_other::OrOther, symbols};
use serde::{Deserialize, Serialize};

symbols! {
    /// The kind of a request's credential. `none`: the server requires no credentials, and every client may do everything.
    CredentialKind { Absent = "none", Token = "token", Jwt = "jwt", Certificate = "certificate" }
}

/// The caller of a request, and the permissions of its credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct WhoAmI {
    /// The kind of its credential.
    pub kind: OrOther<CredentialKind>,
    /// The principal; null without credentials.
    pub principal: Option<String>,
    /// The scopes; without credentials all scopes.
    pub scopes: Vec<String>,
    /// The runs of the scopes, as patterns: `*` means all runs, `acme/*` all runs whose id starts with `acme/`, and `acme` only this
    /// run.
    pub runs: Vec<String>,
    /// Whether content is masked in all answers, because the scope `read_content` is missing. With the scope, answers still mask
    /// content by its privacy class unless the query asks for unmasked content.
    pub masked: bool,
    /// The time at which the credential expires, RFC 3339; null if it does not expire.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    pub expires: Option<String>,
}
