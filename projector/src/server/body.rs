//! Takes the bodies of requests: bounded each, in room that all share, and from clients that keep sending.

use super::{
    App, DEADLINE,
    auth::{Caller, limits::Limit},
};
use crate::Error;
use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::header,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use runlog_schemas::answer::ErrorKind;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// The largest body of records where there is no content store, bytes.
const BYTES_MAX: usize = 16 << 20;
/// The largest body that becomes one record of a fixed shape: the largest record, each of its bytes escaped in JSON, and what is
/// around it.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// The largest body of records where there is a content store: one payload of its limit, and what is around it.
const RECORDS_BYTES_MAX: usize = runlog_content::CONTENT_BYTES_MAX + (8 << 20);
/// A body up to this is taken at once, bytes; longer ones share [`ROOM_BYTES`].
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Longer bodies at the same time, bytes.
pub(super) const ROOM_BYTES: usize = 192 << 20;

/// How long a client may send nothing; from then on it has to have sent [`BYTES_PER_MS_MIN`].
const STALL_MAX: Duration = Duration::from_secs(10);
/// The least speed of a body, bytes per millisecond.
const BYTES_PER_MS_MIN: u64 = 64;

/// The room of a body: of its principal's, and of all clients'.
pub(super) type Taken = [Option<OwnedSemaphorePermit>; 2];

/// The room of a body that is being received. A client that sends nothing takes none.
///
/// A body that told its length takes room for all of it in one step, and so cannot wait for another one that waits for it. The
/// room of others doubles with them.
struct Growing {
    caller: Caller,
    shared: Arc<Semaphore>,
    taken: Taken,
    /// The bytes that there is room for.
    bytes: usize,
    /// The length that the request's head told.
    told: Option<usize>,
    /// The length that the body may have.
    limit: usize,
}

impl Growing {
    fn new(caller: Caller, shared: Arc<Semaphore>, told: Option<usize>, limit: usize) -> Self {
        Self { caller, shared, taken: [None, None], bytes: SMALL_BYTES_MAX, told, limit }
    }

    /// Makes room for the body's first `bytes`.
    ///
    /// Errors: `Overloaded` where there is none by `until`.
    async fn fit(&mut self, bytes: usize, until: Instant) -> Result<(), Error> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let wanted = self.told.unwrap_or_else(|| self.limit.min(2 * bytes)).max(bytes);
        let held = if self.taken[1].is_some() { self.bytes } else { 0 };
        let kilobytes = u32::try_from((wanted - held).div_ceil(1 << 10)).unwrap_or(u32::MAX);
        // Its own first: whoever waits for that takes nothing from others.
        let more =
            async { (self.caller.body(kilobytes).await, self.shared.clone().acquire_many_owned(kilobytes).await.ok()) };
        let full = "there is no room for the body now; nothing happened, send the request again later";
        let more = timeout_at(until, more).await.map_err(|_| Error::new(ErrorKind::Overloaded, full))?;
        for (taken, more) in self.taken.iter_mut().zip(<[_; 2]>::from(more)) {
            match (taken, more) {
                (Some(taken), Some(more)) => taken.merge(more),
                (taken, more) => *taken = more,
            }
        }
        self.bytes = wanted;
        Ok(())
    }
}

/// A body that is not of records, as text. Its room is free when the handler begins: such bodies become small values.
pub(super) struct Text(pub(super) String);

impl FromRequest<App> for Text {
    type Rejection = Error;

    async fn from_request(request: Request, app: &App) -> Result<Self, Error> {
        app.taken(request, DEADLINE, TEXT_BYTES_MAX).await.map(|(body, _)| Self(body))
    }
}

impl App {
    /// A request's body of records, and the room that it takes until it is dropped. Waits for room within `wait`.
    ///
    /// Errors: `TooLarge` over the limit, `Overloaded` where there is no room in time or the caller sent too much,
    /// `Unavailable` where the body comes too slowly or not at all, `Invalid` where it ends early or is
    /// not in the chunks that it should be in.
    pub(crate) async fn body(&self, request: Request, wait: Duration) -> Result<(String, Taken), Error> {
        let limit = if self.0.content().is_some() { RECORDS_BYTES_MAX } else { BYTES_MAX };
        self.taken(request, wait, limit).await
    }

    async fn taken(&self, request: Request, wait: Duration, limit: usize) -> Result<(String, Taken), Error> {
        let told: Option<usize> =
            request.headers().get(header::CONTENT_LENGTH).and_then(|told| told.to_str().ok()?.parse().ok());
        if told.is_some_and(|told| told > limit) {
            return Err(too_large(limit));
        }
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let until = Instant::now() + wait;
        if let Err(refused) = caller.take(Limit::BodyBytesPerSecond, told.unwrap_or_default() as u64) {
            discarded(request.into_body(), until).await;
            return Err(refused);
        }
        let mut room = Growing::new(caller.clone(), self.1.bodies.clone(), told, limit);
        let bytes = received(request.into_body(), told, limit, until, &mut room).await?;
        if told.is_none() {
            caller.owe(Limit::BodyBytesPerSecond, bytes.len() as u64);
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| Error::new(ErrorKind::Invalid, "the body is not UTF-8").because(error))?;
        Ok((text, room.taken))
    }
}

const UNLIKE_HEAD: &str = "the body is not as the request's head says: as long as its Content-Length, or in chunks if it has a \
                           Transfer-Encoding; nothing happened";

/// A body whose client keeps sending, whole by `until`. In as many bytes as it `told`: one that grows is in memory twice each
/// time, and what does not come is never touched.
async fn received(
    body: Body,
    told: Option<usize>,
    limit: usize,
    until: Instant,
    room: &mut Growing,
) -> Result<Vec<u8>, Error> {
    let mut begun = Instant::now();
    let (mut body, mut bytes) = (Limited::new(body, limit), Vec::with_capacity(told.unwrap_or_default()));
    loop {
        let earned = Duration::from_millis(bytes.len() as u64 / BYTES_PER_MS_MIN);
        match timeout_at(until.min(begun + STALL_MAX + earned), body.frame()).await {
            Ok(None) => return Ok(bytes),
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                let full_since = Instant::now();
                room.fit(bytes.len() + data.len(), until).await?;
                // The client cannot send while it waits for room.
                begun += full_since.elapsed();
                bytes.extend_from_slice(&data);
            }
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(too_large(limit)),
            Ok(Some(Err(error))) => {
                return Err(Error::new(ErrorKind::Invalid, UNLIKE_HEAD).because(error));
            }
            Err(_) => {
                let got = bytes.len();
                let message = format!("the body came too slowly: {got} bytes in {} s", begun.elapsed().as_secs());
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        }
    }
}

/// Reads a body and keeps nothing of it, in the time that a client may send nothing. One that is still sending when its
/// connection is closed may lose the reason.
async fn discarded(mut body: Body, until: Instant) {
    let until = until.min(Instant::now() + STALL_MAX);
    while let Ok(Some(Ok(_))) = timeout_at(until, body.frame()).await {}
}

fn too_large(limit: usize) -> Error {
    Error::new(ErrorKind::TooLarge, format!("the body is over the limit of {limit} bytes"))
}
