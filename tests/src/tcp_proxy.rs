//! A TCP proxy in front of a broker that can drop all connections. The broker advertises the proxy's address, so clients that
//! refresh metadata connect through it again.

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

/// A proxy on a free port.
#[derive(Debug)]
pub struct TcpProxy {
    /// The port that clients connect to, on this machine.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: Mutex<Connections>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Connections {
    /// The target; `None` at first and while disconnected.
    broker: Option<SocketAddr>,
    /// Both sides of each connection.
    open: Vec<(TcpStream, TcpStream)>,
}

impl State {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a client to the target, if there is one. Checked and stored under one lock, so `disconnect` misses none.
    fn connect(&self, client: TcpStream) -> Option<()> {
        let mut connections = self.connections();
        let Some(broker) = connections.broker else {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return None;
        };
        let server = TcpStream::connect(broker).ok()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok()?;
        }
        pass(client.try_clone().ok()?, server.try_clone().ok()?);
        pass(server.try_clone().ok()?, client.try_clone().ok()?);
        // Drop connections that clients closed.
        connections.open.retain(|(client, _)| client.peer_addr().is_ok());
        connections.open.push((client, server));
        Some(())
    }
}

/// Copies bytes until either side closes.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        copy(&mut from, &mut to).ok();
        from.shutdown(Shutdown::Both).ok();
        to.shutdown(Shutdown::Both).ok();
    });
}

impl TcpProxy {
    /// Starts a proxy without a target.
    pub fn start() -> anyhow::Result<Self> {
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

    /// Connects clients to a port of this machine from now on.
    pub fn connect_to(&self, port: u16) {
        self.state.connections().broker = Some(([127, 0, 0, 1], port).into());
    }

    /// Closes every connection and refuses new ones until the next `connect_to`. Returns the number closed.
    pub fn disconnect(&self) -> usize {
        let mut connections = self.state.connections();
        connections.broker = None;
        let open = std::mem::take(&mut connections.open);
        for (client, server) in &open {
            client.shutdown(Shutdown::Both).ok();
            server.shutdown(Shutdown::Both).ok();
        }
        open.len()
    }

    /// The number of connections refused so far.
    pub fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::SeqCst)
    }
}
