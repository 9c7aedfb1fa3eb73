//! Time, CPU time and latencies of a piece of work.

use anyhow::Context;
use hdrhistogram::Histogram;
use std::{
    fs,
    future::Future,
    thread,
    time::{Duration, Instant},
};

/// The cost of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub records: u64,
    pub wall: Duration,
    /// CPU time, user and system, of all threads of the process.
    pub cpu: Duration,
}

impl Cost {
    pub(crate) fn per_second(&self) -> f64 {
        self.records as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.records as f64
    }
}

/// The rate of each round, records per second.
pub(crate) fn rates(rounds: &[Cost]) -> Vec<f64> {
    rounds.iter().map(Cost::per_second).collect()
}

/// The CPU time of each round, µs per record.
pub(crate) fn cpu_micros(rounds: &[Cost]) -> Vec<f64> {
    rounds.iter().map(Cost::cpu_micros).collect()
}

/// Runs `N` ways one after another in each round, and returns their results. Every second round has the reverse order, so
/// that no way always runs after the same one.
pub(crate) fn alternating<T, const N: usize>(
    rounds: usize,
    mut run: impl FnMut(usize) -> anyhow::Result<T>,
) -> anyhow::Result<[Vec<T>; N]> {
    let mut measured = [const { Vec::new() }; N];
    for round in 0..rounds {
        for nth in 0..N {
            let way = if round % 2 == 0 { nth } else { N - 1 - nth };
            measured[way].push(run(way)?);
        }
    }
    Ok(measured)
}

/// A clock of this process: wall time and CPU time.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    begun: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> anyhow::Result<Self> {
        Ok(Self { cpu: cpu("self")?, begun: Instant::now() })
    }

    pub(crate) fn stop(&self, records: u64) -> anyhow::Result<Cost> {
        let wall = self.begun.elapsed();
        Ok(Cost { records, wall, cpu: cpu("self")?.saturating_sub(self.cpu) })
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// The CPU time of a process, user and system, of all its threads: `/proc/PID/stat`, proc(5).
pub(crate) fn cpu(pid: &str) -> anyhow::Result<Duration> {
    cpu_at(pid, 11)
}

/// The CPU time of all processes that this process has started and waited for.
pub(crate) fn cpu_of_children() -> anyhow::Result<Duration> {
    cpu_at("self", 13)
}

/// User and system time, from the two fields at `nth` after the program's name.
fn cpu_at(pid: &str, nth: usize) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The second field is the program's name, which may have spaces.
    let (_, fields) = stat.rsplit_once(") ").with_context(|| path.clone())?;
    let mut ticks = fields.split(' ').skip(nth).take(2).map(str::parse::<u64>);
    let (user, system) = (ticks.next().context("user time")??, ticks.next().context("system time")??);
    Ok(Duration::from_secs_f64((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// The peak resident memory of a process, MiB.
pub(crate) fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    memory_mib(pid, "VmHWM:")
}

/// The resident memory of a process, MiB.
pub(crate) fn resident_mib(pid: u32) -> anyhow::Result<f64> {
    memory_mib(pid, "VmRSS:")
}

/// A line of `/proc/PID/status`, proc(5).
fn memory_mib(pid: u32, of: &'static str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(of)).context(of)?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// Latencies, in milliseconds when read.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        // Microseconds up to a minute, with three significant digits.
        Self(Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are legal"))
    }

    pub(crate) fn add(&mut self, took: Duration) {
        self.0.saturating_record(took.as_micros().try_into().unwrap_or(u64::MAX));
    }

    pub(crate) fn millis_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// A quantile of each round, ms.
pub(crate) fn quantiles(quantile: f64, rounds: &[Latencies]) -> Vec<f64> {
    rounds.iter().map(|round| round.millis_at(quantile)).collect()
}

/// Begins `count` pieces of work, one each `1/rate` seconds, even if earlier pieces have not ended. Measures each from
/// its due time, so that delays by slow answers count. A separate thread keeps the time, because tokio's timers have a
/// resolution of a millisecond.
pub(crate) async fn open_loop<W, F>(rate: u32, count: u32, work: W) -> anyhow::Result<Latencies>
where
    W: Fn(u32) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (tick, mut ticks) = tokio::sync::mpsc::unbounded_channel();
    let clock = thread::spawn(move || {
        let started = Instant::now();
        for nth in 0..count {
            let due = started + Duration::from_secs_f64(f64::from(nth) / f64::from(rate));
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if tick.send((nth, due)).is_err() {
                return;
            }
        }
    });
    let mut running = tokio::task::JoinSet::new();
    while let Some((nth, due)) = ticks.recv().await {
        let work = work(nth);
        running.spawn(async move {
            work.await?;
            anyhow::Ok(due.elapsed())
        });
    }
    clock.join().ok().context("the clock panicked")?;
    let mut latencies = Latencies::new();
    while let Some(ended) = running.join_next().await {
        latencies.add(ended??);
    }
    Ok(latencies)
}

/// Does and measures `count` pieces of work one after the other.
pub(crate) async fn one_by_one<F>(count: u32, mut work: impl FnMut(u32) -> F) -> anyhow::Result<Latencies>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut latencies = Latencies::new();
    for nth in 0..count {
        let started = Instant::now();
        work(nth).await?;
        latencies.add(started.elapsed());
    }
    Ok(latencies)
}
