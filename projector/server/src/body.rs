//! Reads the bodies of requests, with a limit for each body, a shared memory quota and a minimum speed.

use super::{
    app::App,
    auth::{Caller, limits::Limit},
    parameters::DEADLINE,
    problem::Refusal,
};
use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::header,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// The largest body of records without a content store, bytes.
const BYTES_MAX: usize = 16 << 20;
/// The largest body that becomes one record of a fixed shape, bytes: the largest record with each byte escaped in JSON,
/// and its envelope.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// The largest body of records with a content store, bytes: the largest payload and its envelope.
const RECORDS_BYTES_MAX: usize = runlog_content::CONTENT_BYTES_MAX + (8 << 20);
/// A body up to this size is read at once, bytes; longer bodies share [`BODY_BYTES`](super::memory_limits::BODY_BYTES).
const SMALL_BYTES_MAX: usize = 64 << 10;

/// How long a client may pause. Beyond this pause it must reach [`BYTES_PER_MS_MIN`] on average.
const STALL_MAX: Duration = Duration::from_secs(10);
/// The minimum average speed of a body, bytes per millisecond.
const BYTES_PER_MS_MIN: u64 = 64;

/// The memory that a body reserves, from the principal's quota and from the shared quota.
pub(super) type BodyReservation = [Option<OwnedSemaphorePermit>; 2];

/// The memory of a body that is being received. A client that sends nothing reserves none.
///
/// A body with a declared length reserves all of it in one step, so it never waits for a body that waits for it. The
/// reservation of other bodies doubles as they grow.
struct Reservation {
    caller: Caller,
    shared: Arc<Semaphore>,
    taken: BodyReservation,
    /// The size that is reserved, bytes.
    bytes: usize,
    /// The length that the request declares.
    declared: Option<usize>,
    /// The largest length, bytes.
    limit: usize,
}

impl Reservation {
    fn new(caller: Caller, shared: Arc<Semaphore>, declared: Option<usize>, limit: usize) -> Self {
        Self { caller, shared, taken: [None, None], bytes: SMALL_BYTES_MAX, declared, limit }
    }

    /// Reserves memory for the body's first `bytes`.
    ///
    /// Errors: `Overloaded` if there is none by `until`.
    async fn grow(&mut self, bytes: usize, until: Instant) -> Result<(), Error> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let size = self.declared.unwrap_or_else(|| self.limit.min(2 * bytes)).max(bytes);
        let reserved = if self.taken[1].is_some() { self.bytes } else { 0 };
        let kilobytes = u32::try_from((size - reserved).div_ceil(1 << 10)).unwrap_or(u32::MAX);
        // The principal's quota comes first: a request that waits for it holds no shared memory.
        let more =
            async { (self.caller.body(kilobytes).await, self.shared.clone().acquire_many_owned(kilobytes).await.ok()) };
        let full = "the server has no memory for the body now; nothing happened, send the request again later";
        let more = timeout_at(until, more).await.map_err(|_| Error::new(ErrorKind::Overloaded, full))?;
        for (taken, more) in self.taken.iter_mut().zip(<[_; 2]>::from(more)) {
            match (taken, more) {
                (Some(taken), Some(more)) => taken.merge(more),
                (taken, more) => *taken = more,
            }
        }
        self.bytes = size;
        Ok(())
    }
}

/// A body without records, as text. Its memory is released before the handler begins, since it becomes a small value.
pub(super) struct Text(pub(super) String);

impl FromRequest<App> for Text {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        receive(app, request, DEADLINE, TEXT_BYTES_MAX).await.map(|(body, _)| Self(body)).map_err(Refusal)
    }
}

/// Reads a request's body of records. Returns it with its memory reservation, for which it waits at most `wait`.
///
/// Errors: `TooLarge` over the limit; `Overloaded` if the memory is not free in time or the caller sent too much;
/// `Unavailable` if the body comes too slowly; `Invalid` if it ends early or has malformed chunks.
pub(super) async fn read_records(
    app: &App,
    request: Request,
    wait: Duration,
) -> Result<(String, BodyReservation), Error> {
    let limit = if app.projector.content().is_some() { RECORDS_BYTES_MAX } else { BYTES_MAX };
    receive(app, request, wait, limit).await
}

async fn receive(
    app: &App,
    request: Request,
    wait: Duration,
    limit: usize,
) -> Result<(String, BodyReservation), Error> {
    let declared: Option<usize> =
        request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
    let until = Instant::now() + wait;
    if let Err(refused) = caller.take(Limit::BodyBytesPerSecond, declared.unwrap_or_default() as u64) {
        discard_body(request.into_body(), until).await;
        return Err(refused);
    }
    let mut reservation = Reservation::new(caller.clone(), app.limits.bodies.clone(), declared, limit);
    let bytes = read_body(request.into_body(), until, &mut reservation).await?;
    if declared.is_none() {
        caller.owe(Limit::BodyBytesPerSecond, bytes.len() as u64);
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| Error::new(ErrorKind::Invalid, "the body is not UTF-8").because(error))?;
    Ok((text, reservation.taken))
}

const UNLIKE_HEAD: &str = "the body does not match the request's head: it must have the Content-Length, or be in chunks if there is \
                           a Transfer-Encoding; nothing happened";

/// Reads a body whose client keeps sending until `until`. The buffer has the declared size from the start: a growing
/// buffer is in memory twice, and pages that receive no bytes are never touched.
async fn read_body(body: Body, until: Instant, reservation: &mut Reservation) -> Result<Vec<u8>, Error> {
    let (mut started, limit) = (Instant::now(), reservation.limit);
    let mut bytes = Vec::with_capacity(reservation.declared.unwrap_or_default());
    let mut body = Limited::new(body, limit);
    loop {
        let earned = Duration::from_millis(bytes.len() as u64 / BYTES_PER_MS_MIN);
        match timeout_at(until.min(started + STALL_MAX + earned), body.frame()).await {
            Ok(None) => return Ok(bytes),
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                let full_since = Instant::now();
                reservation.grow(bytes.len() + data.len(), until).await?;
                // The client cannot send while its request waits for memory.
                started += full_since.elapsed();
                bytes.extend_from_slice(&data);
            }
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(too_large(limit)),
            Ok(Some(Err(error))) => {
                return Err(Error::new(ErrorKind::Invalid, UNLIKE_HEAD).because(error));
            }
            Err(_) => {
                let got = bytes.len();
                let message = format!("the body came too slowly: {got} bytes in {} s", started.elapsed().as_secs());
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        }
    }
}

/// Reads and drops a body for at most the time that a client may pause. If the connection closed while the client still
/// sends, the client could lose the error.
async fn discard_body(mut body: Body, until: Instant) {
    let until = until.min(Instant::now() + STALL_MAX);
    while let Ok(Some(Ok(_))) = timeout_at(until, body.frame()).await {}
}

fn too_large(limit: usize) -> Error {
    Error::new(ErrorKind::TooLarge, format!("the body is over the limit of {limit} bytes"))
}
