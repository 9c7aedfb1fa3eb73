//! Real brokers in containers. `scripts/test.sh` starts a shared broker and sets `RUNLOG_TEST_BROKER` to its address.
//! Tests that pause, kill or disconnect a broker start their own.
//!
//! A watcher holds the other end of a pipe and removes the container when this process exits: statics are never dropped,
//! and SIGKILL drops no values.

use std::{
    env,
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{ChildStdin, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use runlog_log::kafka::{KafkaConfig, KafkaLog, admin};
use testcontainers::{
    ContainerRequest, GenericImage, ImageExt,
    core::{IntoContainerPort, WaitFor},
    runners::AsyncRunner,
};
use uuid::Uuid;

use crate::{certificates::Pair, programs::output, tcp_proxy::TcpProxy};

/// The image that the repository builds; `RUNLOG_KAFKA_IMAGE` names another image, which must accept the same
/// environment variables.
const IMAGE: &str = "runlog/kafka:4.3.0";

/// The image of a broker.
pub(crate) fn image() -> String {
    env::var("RUNLOG_KAFKA_IMAGE").unwrap_or_else(|_| IMAGE.into())
}

/// `HOST:PORT` of the broker that all tests of a run share.
pub const SHARED_BROKER: &str = "RUNLOG_TEST_BROKER";

/// The SASL mechanism of [`Broker::secured`].
pub const MECHANISM: &str = "SCRAM-SHA-512";

/// How long a broker may take to start.
const START_WAIT: Duration = Duration::from_secs(120);

/// A broker. One that this process started is removed when it is dropped and when this process ends.
#[derive(Debug)]
pub struct Broker {
    port: u16,
    /// The advertised port.
    advertised: u16,
    /// `None` if another process started the broker.
    container: Option<Container>,
}

#[derive(Debug)]
struct Container {
    id: String,
    /// Breaks when this process ends.
    _watcher: ChildStdin,
}

impl Broker {
    /// Starts a separate broker, which the caller may stop and kill.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(None, &[])
    }

    /// Starts a broker that advertises the proxy's port. The proxy forwards to it when this returns.
    pub fn start_behind(proxy: &TcpProxy) -> anyhow::Result<Self> {
        let broker = Self::start_with(Some(proxy.port), &[])?;
        proxy.connect_to(broker.port);
        Ok(broker)
    }

    /// Starts a broker that accepts clients by SASL_SSL only, with a certificate for 127.0.0.1. [`Broker::set_password`] sets
    /// the passwords.
    pub fn secured(pair: &Pair) -> anyhow::Result<Self> {
        let line = |pem: &str| pem.replace('\n', "\\n");
        let map = "EXTERNAL:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
        let login = "org.apache.kafka.common.security.scram.ScramLoginModule required;".to_owned();
        Self::start_with(
            None,
            &[
                ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", map),
                ("KAFKA_SASL_ENABLED_MECHANISMS", MECHANISM.to_owned()),
                ("KAFKA_LISTENER_NAME_EXTERNAL_SCRAM___SHA___512_SASL_JAAS_CONFIG", login),
                ("KAFKA_SSL_KEYSTORE_TYPE", "PEM".to_owned()),
                ("KAFKA_SSL_KEYSTORE_KEY", line(&pair.key)),
                ("KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN", line(&pair.cert)),
            ],
        )
    }

    /// Sets the password of a user of [`Broker::secured`].
    pub fn set_password(&self, user: &str, password: &str) -> anyhow::Result<()> {
        let config = format!("{MECHANISM}=[iterations=4096,password={password}]");
        let java = ["exec", self.container()?, "java", "-XX:TieredStopAtLevel=1", "-cp", "/opt/kafka/libs/*"];
        let alter = ["kafka.admin.ConfigCommand", "--bootstrap-server", "localhost:19092", "--alter"];
        let of = ["--add-config", &config, "--entity-type", "users", "--entity-name", user];
        docker(&[&java[..], &alter, &of].concat())
    }

    /// Starts a broker; `more` overrides variables of [`environment`].
    fn start_with(proxy: Option<u16>, more: &[(&'static str, String)]) -> anyhow::Result<Self> {
        // The broker advertises its port, so the port must be known before the start; another process may take it meanwhile.
        let mut failure = None;
        for _ in 0..3 {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let advertised = proxy.unwrap_or(port);
            match create(port, advertised, more) {
                Ok(id) => {
                    let container = Some(Container { _watcher: watch(&format!("docker rm -f -v {id}"))?, id });
                    return Ok(Self { port, advertised, container });
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.context("no attempt")?.context("the broker's container does not start"))
    }

    /// The broker that tests share: [`SHARED_BROKER`], or else a broker of this process. Tests must not stop it, and must
    /// use their own topics.
    ///
    /// Panics if it does not start, or if the variable is not `127.0.0.1:PORT`.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(|| match env::var(SHARED_BROKER) {
            Ok(address) => {
                let port = address.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok());
                let port = port.unwrap_or_else(|| panic!("{SHARED_BROKER}={address} is not 127.0.0.1:PORT"));
                Self { port, advertised: port, container: None }
            }
            Err(_) => Self::start().unwrap_or_else(|error| panic!("{error:?}")),
        })
    }

    fn container(&self) -> anyhow::Result<&str> {
        let container = self.container.as_ref().context("a shared broker must not be stopped")?;
        Ok(&container.id)
    }

    /// `HOST:PORT`; of the proxy if there is one.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.advertised)
    }

    /// The port to which a proxy forwards.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The configuration of a topic with a unique name, which is not created.
    pub fn unique_topic(&self) -> KafkaConfig {
        KafkaConfig::new(self.bootstrap(), format!("test-{}", Uuid::new_v4().simple()))
    }

    /// The configuration of a new topic, as a journal needs it.
    pub fn topic(&self, partitions: u32) -> anyhow::Result<KafkaConfig> {
        let config = self.unique_topic();
        ensure!(admin::create_topic(&config, partitions)?, "the topic is new");
        Ok(config)
    }

    /// A log on a new topic.
    pub fn log(&self, partitions: u32) -> anyhow::Result<KafkaLog> {
        Ok(KafkaLog::connect(self.topic(partitions)?)?)
    }

    /// Kills the broker with SIGKILL.
    pub fn kill(&self) -> anyhow::Result<()> {
        docker(&["kill", "-s", "KILL", self.container()?])
    }

    /// Starts the killed broker again with its disk, and waits until it serves.
    pub fn restart(&self) -> anyhow::Result<()> {
        docker(&["start", self.container()?])?;
        let started = Instant::now();
        while let Err(error) = admin::describe(&self.unique_topic()) {
            if started.elapsed() > START_WAIT {
                return Err(error).context("the broker does not serve again");
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Suspends the broker with SIGSTOP; it then neither answers nor closes connections. `docker pause` sometimes fails on a
    /// busy machine. Returns when the process is stopped: until then the broker may still acknowledge appends.
    pub fn pause(&self) -> anyhow::Result<()> {
        suspend(self.container()?)
    }

    /// Changes one byte of `text` on the broker's disk. A record value in the partition's first segment contains `text`
    /// uncompressed.
    pub fn damage(&self, topic: &str, partition: u32, text: &str) -> anyhow::Result<()> {
        let container = self.container()?;
        let run = |script: &str, argument: &str| -> anyhow::Result<Vec<u8>> {
            let output = Command::new("docker").args(["exec", container, "sh", "-c", script, argument]).output()?;
            ensure!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
            Ok(output.stdout)
        };
        let find = r#"find / -path "*/$0/00000000000000000000.log" 2>/dev/null | head -n 1"#;
        let segment = String::from_utf8(run(find, &format!("{topic}-{partition}"))?)?;
        let bytes = run(r#"cat "$0""#, segment.trim())?;
        let at = bytes.windows(text.len()).position(|part| part == text.as_bytes()).context("the text is stored")?;
        run(&format!(r#"printf X | dd of="$0" bs=1 seek={at} conv=notrunc"#), segment.trim())?;
        Ok(())
    }

    /// Ends [`Broker::pause`].
    pub fn unpause(&self) -> anyhow::Result<()> {
        docker(&["kill", "-s", "CONT", self.container()?])
    }
}

/// Suspends the broker in a container; returns when its process is stopped.
pub(crate) fn suspend(container: &str) -> anyhow::Result<()> {
    docker(&["kill", "-s", "STOP", container])?;
    let started = Instant::now();
    loop {
        let shown = output(Command::new("docker").args(["top", container, "-o", "pid,stat"]))?;
        let mut states = shown.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        if states.any(|state| state.starts_with('T')) {
            return Ok(());
        }
        ensure!(started.elapsed() < START_WAIT, "the broker is not stopped: {shown}");
        thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The watcher repeats a failed removal.
        let _ = docker(&["rm", "-f", "-v", &self.id]);
    }
}

fn create(port: u16, advertised: u16, more: &[(&'static str, String)]) -> anyhow::Result<String> {
    let image = image();
    let (name, tag) = image.rsplit_once(':').unwrap_or((&image, "latest"));
    let started = WaitFor::message_on_stdout("Kafka Server started");
    let image = GenericImage::new(name, tag).with_exposed_port(9092.tcp()).with_wait_for(started);
    let mut request: ContainerRequest<GenericImage> = image.with_mapped_port(port, 9092.tcp());
    request = request.with_startup_timeout(START_WAIT);
    // Publishes the port on the loopback interface only.
    request = request.with_host_config_modifier(|host| {
        for binding in host.port_bindings.iter_mut().flat_map(|ports| ports.values_mut()).flatten().flatten() {
            binding.host_ip = Some("127.0.0.1".into());
        }
    });
    for (name, value) in environment(advertised).into_iter().chain(more.iter().cloned()) {
        request = request.with_env_var(name, value);
    }
    // On a separate thread, because the caller may be inside a runtime.
    let starting = thread::spawn(move || -> anyhow::Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let container = request.start().await?;
            let id = container.id().to_owned();
            // Its drop needs this runtime, which ends here; `Container` removes it instead.
            std::mem::forget(container);
            Ok(id)
        })
    });
    starting.join().unwrap_or_else(|_| bail!("starting the container panicked"))
}

/// One broker that is its own controller, with a listener for clients outside of the container.
fn environment(port: u16) -> [(&'static str, String); 12] {
    let advertised = format!("EXTERNAL://127.0.0.1:{port},INTERNAL://localhost:19092");
    [
        ("KAFKA_NODE_ID", "1".into()),
        ("KAFKA_PROCESS_ROLES", "broker,controller".into()),
        ("KAFKA_LISTENERS", "EXTERNAL://:9092,INTERNAL://:19092,CONTROLLER://:9093".into()),
        ("KAFKA_ADVERTISED_LISTENERS", advertised),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT".into()),
        ("KAFKA_INTER_BROKER_LISTENER_NAME", "INTERNAL".into()),
        ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER".into()),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9093".into()),
        ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1".into()),
        ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1".into()),
        ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1".into()),
        ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0".into()),
    ]
}

/// Starts a watcher that runs a shell command when this process ends. It has its own process group, so that an interrupt
/// at the terminal does not end it first.
pub(crate) fn watch(at_end: &str) -> anyhow::Result<ChildStdin> {
    let mut watcher = Command::new("sh")
        .args(["-c", &format!("cat >/dev/null; {at_end}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("the container's watcher does not start")?;
    watcher.stdin.take().context("stdin is piped")
}

fn docker(arguments: &[&str]) -> anyhow::Result<()> {
    output(Command::new("docker").args(arguments)).map(drop)
}
