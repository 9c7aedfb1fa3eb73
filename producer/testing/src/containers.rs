//! The service image for tests: on a local journal, or with Kafka beside it.
//!
//! ```text
//!   Server        this machine ──127.0.0.1:PORT──▶ runlog, its journal in the container
//!   KafkaServer   this machine ──127.0.0.1:PORT──▶ runlog ──a network of their own──▶ kafka ◀──127.0.0.1:PORT── this machine
//! ```
//!
//! Each has names of its own. Values must be dropped within the Tokio runtime, which removes the containers.

use std::{env, fmt, io, net::Ipv4Addr, time::Duration};

use runlog_producer::{Config, Journal, Runlog};
use testcontainers::{
    ContainerAsync, ContainerRequest, GenericImage, ImageExt, TestcontainersError,
    core::{IntoContainerPort, WaitFor},
    runners::AsyncRunner,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use uuid::Uuid;

/// The maximum time for a container's start, and again for the server's readiness.
pub const READY_WAIT: Duration = Duration::from_secs(120);

/// The label of all containers of this crate. Its value identifies one test.
pub const LABEL: &str = "org.runlog.testing";

const PORT: u16 = 7070;
const KAFKA_PORT: u16 = 9092;
/// The pause between two requests for a server's readiness. Each request has the time limit [`ASK_WAIT`].
const POLL: Duration = Duration::from_millis(50);
const ASK_WAIT: Duration = Duration::from_secs(5);
/// Another process may take the port that was chosen for a broker.
const KAFKA_ATTEMPTS: usize = 3;
const LOG_BYTES_SHOWN: usize = 2000;

/// A server that did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Docker did not start a container: it does not run, or an image is missing (`make image kafka-image`).
    #[error("the container of {image} did not start")]
    Container {
        /// The image.
        image: String,
        /// The failed step.
        #[source]
        source: Box<TestcontainersError>,
    },
    /// The server started, and was not ready in time.
    #[error("the server was not ready within {} s; its log ends with {log:?}", READY_WAIT.as_secs())]
    NotReady {
        /// The end of the server's log.
        log: String,
    },
    /// There is no free port.
    #[error("no free port on 127.0.0.1")]
    Port(#[source] io::Error),
}

/// The images to start. Default: the images from `RUNLOG_IMAGE` and `RUNLOG_KAFKA_IMAGE`, otherwise the images that
/// `make image kafka-image` builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// `NAME:TAG` of the server.
    pub runlog: String,
    /// `NAME:TAG` of Kafka, which accepts the variables of the official image.
    pub kafka: String,
}

impl Default for Images {
    fn default() -> Self {
        let of = |variable, image: &str| env::var(variable).unwrap_or_else(|_| image.to_owned());
        let (runlog, kafka) = ("runlog/runlog:dev", "runlog/kafka:4.3.0");
        Self { runlog: of("RUNLOG_IMAGE", runlog), kafka: of("RUNLOG_KAFKA_IMAGE", kafka) }
    }
}

/// A server on its own empty journal. It has no authentication and no TLS: for tests only.
pub struct Server {
    url: String,
    container: ContainerAsync<GenericImage>,
}

impl Server {
    /// Starts a server, and waits until it is ready. After a cancellation a container with the [`LABEL`] may remain.
    pub async fn start() -> Result<Self, Error> {
        Self::start_image(&Images::default()).await
    }

    /// As [`Server::start`], with another image.
    pub async fn start_image(images: &Images) -> Result<Self, Error> {
        Self::on("--local", &images.runlog, &Test::new()).await
    }

    async fn on(log: &str, image: &str, test: &Test) -> Result<Self, Error> {
        let flags = format!("serve {log} --data /data --listen 0.0.0.0:{PORT} --insecure-no-tls --insecure-no-auth");
        // The port is the system's choice.
        let request = test.request(image, "server", WaitFor::message_on_stdout("listening"), (0, PORT));
        let container = started(image, request.with_cmd(flags.split(' '))).await?;
        let port = container.get_host_port_ipv4(PORT.tcp()).await;
        let port = port.map_err(|source| Error::Container { image: image.to_owned(), source: Box::new(source) })?;
        let server = Self { url: format!("http://127.0.0.1:{port}"), container };
        match timeout(READY_WAIT, ready(port)).await {
            Ok(()) => Ok(server),
            Err(_) => Err(Error::NotReady { log: server.log().await }),
        }
    }

    /// Its URL, for [`Journal::Http`] and for the command.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Connects an agent to it, with the defaults. Errors: as [`Runlog::connect`].
    pub async fn connect(&self, agent_id: &str) -> Result<Runlog, runlog_producer::Error> {
        Runlog::connect(Config::new(Journal::Http(self.url.clone()), agent_id)).await
    }

    /// The end of the server's log; empty if Docker does not return it.
    pub async fn log(&self) -> String {
        let written = self.container.stderr_to_vec().await.unwrap_or_default();
        let end = written.len().saturating_sub(LOG_BYTES_SHOWN);
        String::from_utf8_lossy(&written[end..]).into_owned()
    }

    /// The container's id, for other uses of Docker.
    pub fn container(&self) -> &str {
        self.container.id()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.url).field("container", &self.container()).finish()
    }
}

/// A broker of Kafka, and a server on it, in a network of their own. The topic is created, and empty.
#[derive(Debug)]
pub struct KafkaServer {
    // Dropped first: the server goes before its broker.
    server: Server,
    brokers: String,
    _kafka: ContainerAsync<GenericImage>,
}

impl KafkaServer {
    /// Starts both, and waits until the server is ready. After a cancellation containers with the [`LABEL`] may remain.
    pub async fn start() -> Result<Self, Error> {
        Self::start_images(&Images::default()).await
    }

    /// As [`KafkaServer::start`], with other images.
    pub async fn start_images(images: &Images) -> Result<Self, Error> {
        let mut attempt = 1;
        let (test, port, kafka) = loop {
            // A broker advertises its port to clients, so the port is chosen before the broker starts.
            let port = free_port().await.map_err(Error::Port)?;
            let test = Test::new();
            match started(&images.kafka, test.kafka(&images.kafka, port)).await {
                Ok(kafka) => break (test, port, kafka),
                Err(error) if attempt == KAFKA_ATTEMPTS => return Err(error),
                Err(_) => attempt += 1,
            }
        };
        let server = Server::on(&format!("--brokers {}:19092", test.name("kafka")), &images.runlog, &test).await?;
        Ok(Self { server, brokers: format!("127.0.0.1:{port}"), _kafka: kafka })
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The server's URL.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Kafka's address, `HOST:PORT`, for [`Journal::Kafka`] and other clients of Kafka.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }
}

/// The name that the containers of one value share, and no others have.
struct Test(String);

impl Test {
    fn new() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }

    fn name(&self, role: &str) -> String {
        format!("runlog-testing-{role}-{}", self.0)
    }

    /// A container of `image` that publishes a port, as `(here, there)`, to this machine only.
    fn request(&self, image: &str, role: &str, ready: WaitFor, ports: (u16, u16)) -> ContainerRequest<GenericImage> {
        let (name, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
        GenericImage::new(name, tag)
            .with_wait_for(ready)
            .with_mapped_port(ports.0, ports.1.tcp())
            .with_container_name(self.name(role))
            .with_network(self.name("network"))
            .with_label(LABEL, &self.0)
            .with_startup_timeout(READY_WAIT)
            .with_host_config_modifier(|host| {
                for binding in host.port_bindings.iter_mut().flat_map(|ports| ports.values_mut()).flatten().flatten() {
                    binding.host_ip = Some(Ipv4Addr::LOCALHOST.to_string());
                }
            })
    }

    /// One broker that is its own controller, with a listener for this machine and one for the network.
    fn kafka(&self, image: &str, port: u16) -> ContainerRequest<GenericImage> {
        let advertised = format!("EXTERNAL://127.0.0.1:{port},INTERNAL://{}:19092", self.name("kafka"));
        let settings = [
            ("KAFKA_NODE_ID", "1"),
            ("KAFKA_PROCESS_ROLES", "broker,controller"),
            ("KAFKA_LISTENERS", "EXTERNAL://:9092,INTERNAL://:19092,CONTROLLER://:9093"),
            ("KAFKA_ADVERTISED_LISTENERS", &advertised),
            ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"),
            ("KAFKA_INTER_BROKER_LISTENER_NAME", "INTERNAL"),
            ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
            ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9093"),
            ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
            ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1"),
            ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1"),
            ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
        ];
        let ready = WaitFor::message_on_stdout("Kafka Server started");
        let request = self.request(image, "kafka", ready, (port, KAFKA_PORT));
        settings.into_iter().fold(request, |request, (name, value)| request.with_env_var(name, value))
    }
}

async fn started(image: &str, request: ContainerRequest<GenericImage>) -> Result<ContainerAsync<GenericImage>, Error> {
    request.start().await.map_err(|source| Error::Container { image: image.to_owned(), source: Box::new(source) })
}

async fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port())
}

/// Waits until every partition of the server is caught up.
async fn ready(port: u16) {
    while !matches!(timeout(ASK_WAIT, is_ready(port)).await, Ok(Ok(true))) {
        sleep(POLL).await;
    }
}

/// Whether `/readyz` is answered with 200. An HTTP client for this single request would add its own TLS library.
async fn is_ready(port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await?;
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status).await?;
    Ok(status == *b"HTTP/1.1 200")
}
