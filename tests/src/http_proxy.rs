//! An HTTP proxy that injects faults: it truncates a response, drops or holds a request, or responds in place of the server.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use anyhow::Context;

/// Length of a truncated response, bytes: part of its head.
const TRUNCATED_BYTES: usize = 40;

/// A proxy in front of a server.
#[derive(Debug)]
pub struct HttpProxy {
    /// The URL that clients use: `http://HOST:PORT`.
    pub url: String,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    server: String,
    /// Faults concern only requests whose request line contains this.
    path: &'static str,
    /// Responses still to truncate.
    truncations: AtomicU32,
    /// Requests still to drop.
    drops: AtomicU32,
    /// Responses truncated so far.
    truncated: AtomicU32,
    /// Requests to pass on before the next fault.
    skips: AtomicU32,
    /// The responses to the next requests, and whether the server receives those requests.
    substitutes: Mutex<VecDeque<(String, bool)>>,
    /// Whether requests of any path are held.
    held: Mutex<bool>,
    released: Condvar,
}

/// Holds requests until it is dropped.
#[derive(Debug)]
pub struct HeldRequests(Arc<State>);

impl Drop for HeldRequests {
    fn drop(&mut self) {
        *self.0.held.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.released.notify_all();
    }
}

/// A fault in the next response of a connection.
#[derive(Debug)]
enum ResponseFault {
    Truncate,
    Replace(String),
}

impl HttpProxy {
    /// Starts a proxy for the server at `url`. Faults concern only requests whose request line contains `path`.
    pub fn start(url: &str, path: &'static str) -> anyhow::Result<Self> {
        let server = url.strip_prefix("http://").context("the server's URL")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = State {
            server,
            path,
            truncations: AtomicU32::new(0),
            drops: AtomicU32::new(0),
            truncated: AtomicU32::new(0),
            skips: AtomicU32::new(0),
            substitutes: Mutex::default(),
            held: Mutex::default(),
            released: Condvar::default(),
        };
        let state = Arc::new(state);
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                thread::spawn(move || serve(client, &state));
            }
        });
        Ok(Self { url, state })
    }

    /// Truncates the next response.
    pub fn truncate_next_response(&self) {
        self.state.truncations.fetch_add(1, Ordering::SeqCst);
    }

    /// Closes the connection instead of passing on the next request whose response is not truncated.
    pub fn drop_next_request(&self) {
        self.state.drops.fetch_add(1, Ordering::SeqCst);
    }

    /// Responds to the next request with this text and closes the connection. The server receives the request only if `passed`.
    /// A second call applies to the request after that.
    pub fn answer_next(&self, text: &str, passed: bool) {
        self.state.substitutes.lock().unwrap_or_else(PoisonError::into_inner).push_back((text.to_owned(), passed));
    }

    /// Passes on this many more requests before the next fault.
    pub fn skip(&self, requests: u32) {
        self.state.skips.fetch_add(requests, Ordering::SeqCst);
    }

    /// Holds the requests of any path until the returned value is dropped.
    #[must_use]
    pub fn hold(&self) -> HeldRequests {
        *self.state.held.lock().unwrap_or_else(PoisonError::into_inner) = true;
        HeldRequests(self.state.clone())
    }

    /// The number of responses truncated so far.
    pub fn truncated(&self) -> u32 {
        self.state.truncated.load(Ordering::SeqCst)
    }
}

/// Serves one connection. HTTP/1.1 without pipelining: a request is complete before its response is read.
fn serve(mut client: TcpStream, state: &State) -> Option<()> {
    let mut server = TcpStream::connect(&state.server).ok()?;
    let (mut responses, mut back) = (server.try_clone().ok()?, client.try_clone().ok()?);
    let fault = Arc::<Mutex<Option<ResponseFault>>>::default();
    let next_fault = fault.clone();
    let mut own = client.try_clone().ok()?;
    let reader = thread::spawn(move || {
        let mut bytes = [0; 16384];
        while let Ok(count @ 1..) = responses.read(&mut bytes) {
            if let Some(fault) = next_fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = match fault {
                    ResponseFault::Truncate => back.write_all(&bytes[..count.min(TRUNCATED_BYTES)]),
                    ResponseFault::Replace(text) => back.write_all(text.as_bytes()),
                };
                break;
            }
            if back.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = back.shutdown(Shutdown::Both);
        let _ = responses.shutdown(Shutdown::Both);
    });
    let mut bytes = [0; 16384];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let guard = state.held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(state.released.wait_while(guard, |guard| *guard).unwrap_or_else(PoisonError::into_inner));
        let request = String::from_utf8_lossy(&bytes[..count]);
        let matches = request.lines().next().is_some_and(|line| line.contains(state.path));
        let one_less = |count: u32| count.checked_sub(1);
        let matches = matches && state.skips.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err();
        if matches && state.truncations.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            fault.lock().unwrap_or_else(PoisonError::into_inner).replace(ResponseFault::Truncate);
            state.truncated.fetch_add(1, Ordering::SeqCst);
        } else if matches && state.drops.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            break;
        }
        let substitute = || state.substitutes.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match matches.then(substitute).flatten() {
            Some((text, true)) => {
                drop(fault.lock().unwrap_or_else(PoisonError::into_inner).replace(ResponseFault::Replace(text)))
            }
            Some((text, false)) => {
                let _ = own.write_all(text.as_bytes());
                break;
            }
            None => {}
        }
        if server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    reader.join().ok()
}
