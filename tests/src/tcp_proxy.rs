//! A TCP proxy in front of a broker that can drop or silence all connections. The broker advertises the proxy's address, so clients that
//! refresh metadata connect through it again.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    open: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Bytes in either direction are discarded.
    silent: Arc<AtomicBool>,
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
        let silent = Arc::<AtomicBool>::default();
        pass(client.try_clone().ok()?, server.try_clone().ok()?, silent.clone());
        pass(server.try_clone().ok()?, client.try_clone().ok()?, silent.clone());
        // Drop connections that clients closed.
        connections.open.retain(|connection| connection.client.peer_addr().is_ok());
        connections.open.push(Connection { client, server, silent });
        Some(())
    }
}

/// Copies bytes until either side closes.
fn pass(mut from: TcpStream, mut to: TcpStream, silent: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if !silent.load(Ordering::SeqCst) && to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
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

    /// Closes every connection and refuses new connections until the next `connect_to`. Returns the number closed.
    pub fn disconnect(&self) -> usize {
        let mut connections = self.state.connections();
        connections.broker = None;
        let open = std::mem::take(&mut connections.open);
        for Connection { client, server, .. } in &open {
            client.shutdown(Shutdown::Both).ok();
            server.shutdown(Shutdown::Both).ok();
        }
        open.len()
    }

    /// Discards all bytes of the open connections, which stay open. New connections work.
    pub fn silence(&self) {
        self.state.connections().open.iter().for_each(|connection| connection.silent.store(true, Ordering::SeqCst));
    }

    /// The number of connections refused so far.
    pub fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::SeqCst)
    }
}
