//! A way to a server that breaks once: a relay that ends a connection in the middle of an answer, or before the server has
//! seen the request, or that answers in place of the server.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use anyhow::Context;

/// Bytes of an answer that arrive before it breaks off: some of its head.
const ARRIVE: usize = 40;

/// A relay in front of a server.
#[derive(Debug)]
pub struct Relay {
    /// Where it listens: `http://HOST:PORT`.
    pub url: String,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    server: String,
    /// Requests whose path has this in it are cut while `cuts` is above 0.
    path: &'static str,
    cuts: AtomicU32,
    /// Requests like these are swallowed while this is above 0.
    swallows: AtomicU32,
    cut: AtomicU32,
    /// Requests like these that are let through before.
    passes: AtomicU32,
    /// What is answered to the next request like these, and whether the server sees it.
    instead: Mutex<Option<(String, bool)>>,
}

/// What is made of a connection's next answer.
#[derive(Debug)]
enum Broken {
    Cut,
    Instead(String),
}

impl Relay {
    /// Before the server at `url`; nothing is cut yet. A path with `path` in it will be.
    pub fn start(url: &str, path: &'static str) -> anyhow::Result<Self> {
        let server = url.strip_prefix("http://").context("the server's URL")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = State {
            server,
            path,
            cuts: AtomicU32::new(0),
            swallows: AtomicU32::new(0),
            cut: AtomicU32::new(0),
            passes: AtomicU32::new(0),
            instead: Mutex::default(),
        };
        let state = Arc::new(state);
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                thread::spawn(move || relay(client, &state));
            }
        });
        Ok(Self { url, state })
    }

    /// Cuts the next answer.
    pub fn cut_next(&self) {
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends the connection on the next request that is not cut instead of passing it on.
    pub fn swallow_next(&self) {
        self.state.swallows.fetch_add(1, Ordering::SeqCst);
    }

    /// Answers the next request with this text, and ends its connection: in place of the server's answer where the request is
    /// `passed` on, otherwise the server never sees it.
    pub fn answer_next(&self, text: &str, passed: bool) {
        *self.state.instead.lock().unwrap_or_else(PoisonError::into_inner) = Some((text.to_owned(), passed));
    }

    /// Lets so many more requests through before anything is made of one.
    pub fn pass(&self, requests: u32) {
        self.state.passes.fetch_add(requests, Ordering::SeqCst);
    }

    /// How many answers were cut.
    pub fn cut(&self) -> u32 {
        self.state.cut.load(Ordering::SeqCst)
    }
}

/// One connection. HTTP/1.1 without pipelining: a request is written whole before its answer is read.
fn relay(mut client: TcpStream, state: &State) -> Option<()> {
    let mut server = TcpStream::connect(&state.server).ok()?;
    let (mut answers, mut back) = (server.try_clone().ok()?, client.try_clone().ok()?);
    let breaks = Arc::<Mutex<Option<Broken>>>::default();
    let breaking = breaks.clone();
    let mut own = client.try_clone().ok()?;
    let reader = thread::spawn(move || {
        let mut bytes = [0; 16384];
        while let Ok(count @ 1..) = answers.read(&mut bytes) {
            if let Some(broken) = breaking.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = match broken {
                    Broken::Cut => back.write_all(&bytes[..count.min(ARRIVE)]),
                    Broken::Instead(text) => back.write_all(text.as_bytes()),
                };
                break;
            }
            if back.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = back.shutdown(Shutdown::Both);
        let _ = answers.shutdown(Shutdown::Both);
    });
    let mut bytes = [0; 16384];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let request = String::from_utf8_lossy(&bytes[..count]);
        let named = request.lines().next().is_some_and(|line| line.contains(state.path));
        let one_less = |count: u32| count.checked_sub(1);
        let named = named && state.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err();
        if named && state.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            breaks.lock().unwrap_or_else(PoisonError::into_inner).replace(Broken::Cut);
            state.cut.fetch_add(1, Ordering::SeqCst);
        } else if named && state.swallows.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            break;
        }
        let instead = || state.instead.lock().unwrap_or_else(PoisonError::into_inner).take();
        match named.then(instead).flatten() {
            Some((text, true)) => {
                drop(breaks.lock().unwrap_or_else(PoisonError::into_inner).replace(Broken::Instead(text)))
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
