//! Resolves the schema ids in a journal, and provides the ids that this build writes.
//!
//! ```text
//!   version(id):  known ──▶ version or unknown schema        not known ──▶ task ──▶ registry ──▶ disk ──▶ known
//!                 request in flight, or just failed ──▶ unresolved, retry later
//! ```
//!
//! Invariant: only the registry's answers become known. A failed request is forgotten after [`Config::pause`].

use crate::{
    cache::Cache,
    client::Client,
    config::Config,
    error::{Error, Kind},
};
use runlog_schemas::{
    codec::{self, Framing, Schemas, Unreadable},
    datum::hex,
    schema::{self, Version},
};
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// Concurrent requests to the registry.
const REQUESTS_MAX: usize = 16;
/// Why an id has no answer yet.
const REQUESTED: &str = "a request to the registry is in flight";
/// Largest number of remembered ids. Above it, ids without a readable schema are forgotten.
const UNKNOWN_MAX: usize = 1 << 16;

/// A registry and its answers so far. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    runtime: Handle,
    cache: Mutex<Cache>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ids: HashMap<u32, Id>,
    /// By version number.
    own: HashMap<u16, Id>,
}

/// The state of an id. An id that this build writes is `Names(_, id)`.
#[derive(Clone, Debug)]
enum Id {
    Names(&'static Version, u32),
    /// The registry answered, but this build cannot read the schema with this id.
    Unknown(String),
    /// A request is in flight and ends before `until`. After that its task is lost, and the request is repeated.
    Requested {
        until: Instant,
    },
    /// The registry gave no answer.
    Paused {
        until: Instant,
        why: String,
    },
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Reads the cached answers, without a request. Requests run on the current runtime, which must outlive them. `http` has
    /// the trusted authorities, as for [`Client::new`].
    ///
    /// Errors: `Invalid` if the folder cannot be used or the client cannot be created.
    pub fn open(config: Config, http: reqwest::ClientBuilder) -> Result<Self, Error> {
        let folder = config.dir.clone();
        let unusable = |error: std::io::Error| {
            let dir = folder.clone().unwrap_or_default();
            Error::new(Kind::Invalid, format!("the schema cache in {} cannot be used: {error}", dir.display()))
        };
        let cache = Cache::open(folder.as_deref()).map_err(unusable)?;
        let mut state = State::default();
        for (id, text) in &cache.schemas {
            state.ids.insert(*id, classify(*id, text));
        }
        for version in schema::versions() {
            let own = cache.own.get(&hex(&version.fingerprint)).and_then(|id| state.ids.get(id));
            if let Some(own) = own.filter(|id| names(id, version)).cloned() {
                state.own.insert(version.number, own);
            }
        }
        Ok(Self {
            inner: Arc::new(Inner {
                client: Client::new(config, http)?,
                runtime: Handle::current(),
                cache: Mutex::new(cache),
                state: Mutex::new(state),
                changed: Condvar::new(),
            }),
        })
    }

    /// Returns the id of a version of the schema. Looks it up or registers it if it is not known yet.
    ///
    /// Errors: `Refused` if the subject does not accept it, `Denied`, `Unavailable` after the deadline.
    pub async fn register(&self, version: &'static Version) -> Result<u32, Error> {
        if let Some(Id::Names(_, id)) = locked(&self.inner.state).own.get(&version.number) {
            return Ok(*id);
        }
        let result = self.inner.register(version).await;
        self.inner.learn_own(version, &result);
        result
    }

    /// Returns the version with this id. Waits for the registry's answer if the id is not known.
    pub async fn resolve(&self, id: u32) -> Result<&'static Version, Unreadable> {
        match self.version(id) {
            Err(Unreadable::Unresolved { .. }) => {
                self.inner.request_schema(id).await;
                self.version(id)
            }
            known => known,
        }
    }

    /// Like [`codec::reframe`], but waits for the registry's answer if one is needed.
    pub async fn reframe<'a>(&self, framed: &'a [u8]) -> Result<Cow<'a, [u8]>, Unreadable> {
        if let Some(id) = codec::confluent_id(framed) {
            self.resolve(id).await?;
        }
        codec::reframe(framed, self)
    }
}

/// Finds this build's version with the schema `text`.
fn classify(id: u32, text: &str) -> Id {
    match schema::by_text(text) {
        Some(version) => Id::Names(version, id),
        None => {
            let fingerprint = schema::fingerprint_of(text).map_or_else(|error| error, |bytes| hex(&bytes));
            Id::Unknown(format!("id {id}, which is not a version that this build reads (fingerprint {fingerprint})"))
        }
    }
}

fn names(id: &Id, version: &Version) -> bool {
    matches!(id, Id::Names(named, _) if *named == version)
}

impl Inner {
    /// The state during a registration or query: at most four requests within the deadline each, and time to write the cache.
    fn request_state(&self) -> Id {
        Id::Requested { until: Instant::now() + 5 * self.client.config().deadline }
    }

    fn pause_state(&self, error: &Error) -> Id {
        Id::Paused { until: Instant::now() + self.client.config().pause, why: error.to_string() }
    }

    /// Queries the registry for `id` and remembers its answer, or pauses after a failure.
    async fn request_schema(&self, id: u32) {
        let state = match self.client.schema(id).await {
            Ok(text) => {
                let state = classify(id, &text);
                self.update_cache(|cache| {
                    cache.schemas.insert(id, text);
                });
                state
            }
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Refused) => {
                Id::Unknown(format!("id {id} ({error})"))
            }
            Err(error) => {
                tracing::warn!(id, "a schema id cannot be resolved yet: {error}");
                self.pause_state(&error)
            }
        };
        locked(&self.state).ids.insert(id, state);
        self.changed.notify_all();
    }

    async fn register(&self, version: &'static Version) -> Result<u32, Error> {
        let id = match self.client.look_up(version.text).await {
            Err(error) if error.kind() == Kind::NotFound => self.client.register(version.text).await?,
            found => found?,
        };
        // A writer that trusted a wrong id would write records that cannot be read.
        let text = self.client.schema(id).await?;
        let state = classify(id, &text);
        if !names(&state, version) {
            let subject = &self.client.config().subject;
            let what = format!(
                "the registry returned id {id} for a schema of subject {subject}, but the id has another schema"
            );
            return Err(Error::new(Kind::Refused, what));
        }
        self.update_cache(|cache| {
            cache.schemas.insert(id, text);
            cache.own.insert(hex(&version.fingerprint), id);
        });
        locked(&self.state).ids.insert(id, state);
        Ok(id)
    }

    fn learn_own(&self, version: &'static Version, result: &Result<u32, Error>) {
        let own = match result {
            Ok(id) => Id::Names(version, *id),
            Err(error) => self.pause_state(error),
        };
        locked(&self.state).own.insert(version.number, own);
        self.changed.notify_all();
    }

    /// Writes the cache before the answer is used, so that applied records can be applied again without the registry.
    fn update_cache(&self, change: impl FnOnce(&mut Cache)) {
        let mut cache = locked(&self.cache);
        change(&mut cache);
        if let Err(error) = cache.write() {
            tracing::warn!("a schema cannot be cached on disk, so a restart needs the registry again: {error}");
        }
    }
}

impl Schemas for Registry {
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable> {
        let mut state = locked(&self.inner.state);
        let unresolved = |what: String, failing| Err(Unreadable::Unresolved { what, failing });
        match state.ids.get(&id) {
            Some(Id::Names(version, _)) => return Ok(version),
            Some(Id::Unknown(what)) => return Err(Unreadable::UnknownSchema(what.clone())),
            Some(Id::Requested { until }) if *until > Instant::now() => {
                return unresolved(format!("id {id}: {REQUESTED}"), false);
            }
            Some(Id::Paused { until, why }) if *until > Instant::now() => {
                return unresolved(format!("id {id}: {why}"), true);
            }
            Some(Id::Requested { .. } | Id::Paused { .. }) | None => {}
        }
        if state.ids.values().filter(|known| matches!(known, Id::Requested { .. })).count() >= REQUESTS_MAX {
            return unresolved(format!("id {id}: {REQUESTS_MAX} requests to the registry are in flight"), false);
        }
        if state.ids.len() > UNKNOWN_MAX {
            state.ids.retain(|_, known| matches!(known, Id::Names(..) | Id::Requested { .. }));
        }
        let failing = match state.ids.insert(id, self.inner.request_state()) {
            // A failure is reported until there is an answer.
            Some(Id::Paused { why, .. }) => Some(why),
            _ => None,
        };
        drop(state);
        let inner = self.inner.clone();
        self.inner.runtime.spawn(async move { inner.request_schema(id).await });
        let failed = failing.is_some();
        unresolved(format!("id {id}: {}", failing.unwrap_or_else(|| REQUESTED.into())), failed)
    }

    fn framing(&self, version: &'static Version) -> Result<Framing, String> {
        let mut state = locked(&self.inner.state);
        let why = match state.own.get(&version.number) {
            Some(Id::Names(_, id)) => return Ok(Framing::Confluent(*id)),
            Some(Id::Paused { until, why }) if *until > Instant::now() => return Err(why.clone()),
            Some(Id::Requested { until }) if *until > Instant::now() => {
                return Err(REQUESTED.into());
            }
            Some(Id::Paused { why, .. } | Id::Unknown(why)) => why.clone(),
            Some(Id::Requested { .. }) | None => REQUESTED.into(),
        };
        state.own.insert(version.number, self.inner.request_state());
        drop(state);
        let inner = self.inner.clone();
        self.inner.runtime.spawn(async move {
            let result = inner.register(version).await;
            inner.learn_own(version, &result);
        });
        Err(why)
    }

    fn wait(&self, longest: Duration) {
        let state = locked(&self.inner.state);
        drop(self.inner.changed.wait_timeout(state, longest));
    }
}
