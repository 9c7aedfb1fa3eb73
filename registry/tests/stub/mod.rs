//! A registry with the documented interface of Confluent's registry. It fails as a test requests. Threads and sockets of the
//! standard library only, so that it can cut a connection where it likes.

use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// The failure of one request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// No answer until the client has had enough.
    Hang,
    /// The connection closes without an answer.
    Cut,
    /// It closes in the middle of the body.
    Half,
    /// A status with an error of the interface.
    Status(u16),
    /// A page of something else, with this status.
    Page(u16),
    /// JSON that is not the interface's.
    OtherJson,
}

/// The registry's schemas, and the requests that it answered.
#[derive(Debug, Default)]
pub struct State {
    /// By id minus [`FIRST`].
    pub schemas: Vec<String>,
    /// Ids by subject.
    pub subjects: BTreeMap<String, Vec<u32>>,
    /// The failures of the next requests, one each.
    pub faults: VecDeque<Fault>,
    /// The failure of every later request.
    pub always: Option<Fault>,
    /// The `authorization` that a request needs.
    pub authorization: Option<String>,
    /// New schemas are not compatible.
    pub refuses: bool,
    /// The schema that it returns for every id.
    pub swapped: Option<String>,
    /// Method and path of each request.
    pub requests: Vec<String>,
}

/// The first id that is given.
pub const FIRST: u32 = 40;

/// A registry on a port of its own, gone when dropped.
#[derive(Debug)]
pub struct Stub {
    pub url: String,
    state: Arc<Mutex<State>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stub {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (state, ended) = (Arc::new(Mutex::new(State::default())), Arc::new(AtomicBool::new(false)));
        let (shared, end) = (state.clone(), ended.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Acquire) {
                    return;
                }
                let shared = shared.clone();
                std::thread::spawn(move || answer(&stream.unwrap(), &shared));
            }
        });
        Self { url, state, ended, thread: Some(thread) }
    }

    /// A look at its state, or a change of it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Has `schema` under an id of its own.
    pub fn add(&self, schema: &str) -> u32 {
        self.state().id_of(schema)
    }

    /// How many requests began like this.
    pub fn request_count(&self, prefix: &str) -> usize {
        self.state().requests.iter().filter(|request| request.starts_with(prefix)).count()
    }

    /// The address without the scheme.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address()));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct Request {
    line: String,
    authorization: Option<String>,
    media: String,
    body: String,
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let line = line.rsplit_once(' ')?.0.to_owned();
    let (mut length, mut authorization, mut media) = (0, None, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        let value = value.trim().to_owned();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => authorization = Some(value),
            "content-type" => media = value,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { line, authorization, media, body: String::from_utf8(body).ok()? })
}

fn answer(mut stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let request = read(stream)?;
    let (fault, (status, body)) = {
        let mut state = state.lock().unwrap();
        state.requests.push(request.line.clone());
        let fault = state.faults.pop_front().or(state.always);
        (fault, if fault.is_none() { state.answer(&request) } else { (200, json!({})) })
    };
    let (status, media, body, sent) = match fault {
        Some(Fault::Hang) => {
            // Until the client goes away.
            let _ = stream.read(&mut [0]);
            return None;
        }
        Some(Fault::Cut) => return None,
        Some(Fault::Half) => (200, "application/json", "{\"schema\": \"\\\"int".to_owned(), 60),
        Some(Fault::Status(status)) => (
            status,
            "application/json",
            json!({"error_code": u32::from(status) * 100 + 1, "message": "m"}).to_string(),
            0,
        ),
        Some(Fault::Page(status)) => (status, "text/html", "<html>nothing here</html>".to_owned(), 0),
        Some(Fault::OtherJson) => (200, "application/json", "{\"hello\": \"world\"}".to_owned(), 0),
        None => (status, "application/vnd.schemaregistry.v1+json", body.to_string(), 0),
    };
    let length = body.len() + sent;
    let head = format!(
        "HTTP/1.1 {status} S\r\ncontent-type: {media}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()
}

fn error(status: u16, code: u32, message: &str) -> (u16, Value) {
    (status, json!({"error_code": code, "message": message}))
}

impl State {
    fn id_of(&mut self, schema: &str) -> u32 {
        let at = self.schemas.iter().position(|known| known == schema).unwrap_or_else(|| {
            self.schemas.push(schema.to_owned());
            self.schemas.len() - 1
        });
        FIRST + u32::try_from(at).unwrap()
    }

    fn answer(&mut self, request: &Request) -> (u16, Value) {
        if self.authorization.is_some() && self.authorization != request.authorization {
            return error(401, 40101, "Unauthorized");
        }
        let (method, path) = request.line.split_once(' ').unwrap();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if method == "POST" && !request.media.contains("json") {
            return error(415, 415, "Unsupported Media Type");
        }
        let given: Option<Value> = serde_json::from_str(&request.body).ok();
        let schema = given.as_ref().and_then(|body| body["schema"].as_str()).unwrap_or_default().to_owned();
        match (method, parts.as_slice()) {
            ("GET", ["schemas", "ids", id]) => {
                let at = id.parse::<u32>().ok().and_then(|id| id.checked_sub(FIRST));
                let schema = at.and_then(|at| self.schemas.get(usize::try_from(at).unwrap()));
                match (&self.swapped, schema) {
                    (Some(other), _) => (200, json!({ "schema": other })),
                    (None, Some(schema)) => (200, json!({ "schema": schema })),
                    (None, None) => error(404, 40403, "Schema not found"),
                }
            }
            ("POST", ["subjects", subject]) => match self.subjects.get(*subject) {
                None => error(404, 40401, "Subject not found"),
                Some(ids) => match ids.iter().find(|id| self.schemas[(**id - FIRST) as usize] == schema) {
                    Some(id) => (200, json!({"subject": subject, "id": id, "version": 1, "schema": schema})),
                    None => error(404, 40403, "Schema not found"),
                },
            },
            ("POST", ["subjects", _, "versions"]) if serde_json::from_str::<Value>(&schema).is_err() => {
                error(422, 42201, "Invalid schema")
            }
            ("POST", ["subjects", _, "versions"]) if self.refuses => {
                error(409, 409, "Schema being registered is incompatible with an earlier schema")
            }
            ("POST", ["subjects", subject, "versions"]) => {
                let id = self.id_of(&schema);
                self.subjects.entry((*subject).to_owned()).or_default().push(id);
                (200, json!({ "id": id }))
            }
            ("POST", ["compatibility", "subjects", subject, "versions", "latest"]) => {
                match self.subjects.contains_key(*subject) {
                    true => (200, json!({"is_compatible": !self.refuses})),
                    false => error(404, 40401, "Subject not found"),
                }
            }
            _ => error(404, 404, "HTTP 404 Not Found"),
        }
    }
}
