//! The way between a broker and all its clients, which can be cut: a proxy at the address that the broker advertises, so
//! that whoever asks the broker where it is comes by here again.

use std::{
    io::copy,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::Context;

/// A proxy on a port of its own.
#[derive(Debug)]
pub struct Cable {
    /// Where clients come to, on this machine.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    ways: Mutex<Ways>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Ways {
    /// Where it leads to; nowhere at first, and while it is cut.
    broker: Option<SocketAddr>,
    /// Both ends of each connection.
    open: Vec<(TcpStream, TcpStream)>,
}

impl State {
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a client, unless it is cut. Decided and noted under one lock, so that a cut leaves no connection.
    fn connect(&self, client: TcpStream) -> Option<()> {
        let mut ways = self.ways();
        let Some(broker) = ways.broker else {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return None;
        };
        let server = TcpStream::connect(broker).ok()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok()?;
        }
        pass(client.try_clone().ok()?, server.try_clone().ok()?);
        pass(server.try_clone().ok()?, client.try_clone().ok()?);
        // What has ended by itself is not kept.
        ways.open.retain(|(client, _)| client.peer_addr().is_ok());
        ways.open.push((client, server));
        Some(())
    }
}

/// Passes on what comes, until either side ends.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        copy(&mut from, &mut to).ok();
        from.shutdown(Shutdown::Both).ok();
        to.shutdown(Shutdown::Both).ok();
    });
}

impl Cable {
    /// Leads nowhere yet.
    pub fn lay() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("the proxy's port")?;
        let (port, state) = (listener.local_addr()?.port(), Arc::<State>::default());
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                shared.connect(client);
            }
        });
        Ok(Self { port, state })
    }

    /// Leads to a port of this machine from now on.
    pub fn mend(&self, port: u16) {
        self.state.ways().broker = Some(([127, 0, 0, 1], port).into());
    }

    /// Ends every connection, and takes none until it is mended. How many there were.
    pub fn cut(&self) -> usize {
        let mut ways = self.state.ways();
        ways.broker = None;
        let open = std::mem::take(&mut ways.open);
        for (client, server) in &open {
            client.shutdown(Shutdown::Both).ok();
            server.shutdown(Shutdown::Both).ok();
        }
        open.len()
    }

    /// Connections that were not taken.
    pub fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::SeqCst)
    }
}
