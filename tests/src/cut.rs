//! A way to a server that breaks once: a relay that ends a connection in the middle of an answer, or before the server has
//! seen the request.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
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
}

impl Relay {
    /// Before the server at `url`; nothing is cut yet. A path with `path` in it will be.
    pub fn start(url: &str, path: &'static str) -> anyhow::Result<Self> {
        let server = url.strip_prefix("http://").context("the server's URL")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let state =
            State { server, path, cuts: AtomicU32::new(0), swallows: AtomicU32::new(0), cut: AtomicU32::new(0) };
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

    /// Ends the connection on the next request instead of passing it on.
    pub fn swallow_next(&self) {
        self.state.swallows.fetch_add(1, Ordering::SeqCst);
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
    let breaks = Arc::new(AtomicU32::new(0));
    let breaking = breaks.clone();
    let reader = thread::spawn(move || {
        let mut bytes = [0; 16384];
        while let Ok(count @ 1..) = answers.read(&mut bytes) {
            if breaking.load(Ordering::SeqCst) > 0 {
                let _ = back.write_all(&bytes[..count.min(ARRIVE)]);
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
        if named && state.swallows.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            break;
        }
        if named && state.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            breaks.store(1, Ordering::SeqCst);
            state.cut.fetch_add(1, Ordering::SeqCst);
        }
        if server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    reader.join().ok()
}
