//! Query parameters and checks that several operations share.

use runlog_projector::index::{
    error::Error,
    projector::Consistency,
    query::{LIMIT, LIMIT_MAX},
};
use runlog_schemas::answer::ErrorKind;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// How long a query waits if it names no deadline.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// How long a query may ask to wait.
const DEADLINE_MAX: Duration = Duration::from_secs(300);

/// The parameters of every query.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    pub(super) consistency: Option<String>,
    pub(super) deadline_ms: Option<u64>,
}

/// The parameters of a request without a subject. Clients may send their deadline with any request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {
    #[serde(rename = "deadline_ms")]
    _deadline_ms: Option<u64>,
}

/// The parameters of a request that appends. Freshness does not apply to it: `consistency` is accepted and ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Patience {
    pub(super) deadline_ms: Option<u64>,
    #[serde(rename = "consistency")]
    #[schemars(skip)]
    _consistency: Option<String>,
}

impl Patience {
    pub(super) fn deadline(&self) -> Duration {
        Ask { consistency: None, deadline_ms: self.deadline_ms }.deadline()
    }
}

impl Ask {
    pub(super) fn deadline(&self) -> Duration {
        self.deadline_ms.map_or(DEADLINE, Duration::from_millis).min(DEADLINE_MAX)
    }

    /// Reads the consistency. Default: `latest` for queries that name a run, `eventual` for lists.
    pub(super) fn consistency(&self, default: Consistency) -> Result<Consistency, Error> {
        self.consistency.as_deref().map_or(Ok(default), |text| {
            Consistency::parse(text).ok_or_else(|| {
                Error::new(
                    ErrorKind::Usage,
                    format!("consistency {text:?} must be eventual, latest or at-least=PARTITION:OFFSET"),
                )
            })
        })
    }
}

/// The pattern that [`check_attribution`] accepts, for the OpenAPI document.
pub(super) const NOT_BLANK: &str = r"\S";

/// Refuses a decision, named by `what`, without a name of who made it or a reason.
pub(super) fn check_attribution(what: &str, who: &str, why: &str) -> Result<(), Error> {
    if who.trim().is_empty() || why.trim().is_empty() {
        return Err(Error::new(ErrorKind::Usage, format!("{what} must name who decided and why")));
    }
    Ok(())
}

/// Checks the size of a page.
pub(super) fn limit(requested: Option<usize>) -> Result<usize, Error> {
    let limit = requested.unwrap_or(LIMIT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::new(ErrorKind::Usage, format!("limit is from 1 to {LIMIT_MAX}, not {limit}")))
}
