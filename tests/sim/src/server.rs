//! A server: a projector over its folder and its routes, which can be killed and started again.

use crate::{
    ambient,
    dice::Dice,
    grants::{self, Sender},
    link::Link,
    mirror,
    stage::Stage,
};
use anyhow::Context;
use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, header},
};
use runlog_projector::{
    Config, Projector,
    index::{
        APPENDS_MAX,
        config::Genesis,
        executor::Executor,
        failpoint::{self, Failpoints},
        store::Storage,
    },
};
use runlog_server::Options;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};
use tower::ServiceExt;

/// The maximum of records that one step reads.
const STEP_RECORDS: u64 = 6;
/// How often an idle loop polls again.
const LOOP_IDLE: Duration = Duration::from_millis(400);
/// How many yields a killed server's tasks get to end.
const YIELDS_MAX: u32 = 1_000;
/// An answer's body, bytes.
const BODY_MAX: usize = 64 << 20;

/// A server of the seed.
pub(crate) struct Server {
    id: u32,
    stage: Arc<Stage>,
    link: Arc<Link>,
    dir: PathBuf,
    storage: Storage,
    running: Mutex<Option<Running>>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// The failpoints at which it panics.
    panics: Arc<Mutex<Vec<&'static str>>>,
}

struct Running {
    projector: Arc<Projector>,
    router: Router,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// A server with its indices in `dir` of `storage`, which outlasts a kill.
    pub(crate) fn new(id: u32, stage: &Arc<Stage>, storage: Storage, dir: PathBuf) -> Arc<Self> {
        let link = Arc::new(Link::new(id, stage));
        stage.add_link(link.clone());
        let (running, tasks, panics) = (Mutex::default(), Arc::default(), Arc::default());
        Arc::new(Self { id, stage: stage.clone(), link, dir, storage, running, tasks, panics })
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn name(&self) -> String {
        format!("server {}", self.id)
    }

    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        self.stage.tell(line);
    }

    /// Panics at the next hit of this failpoint.
    pub(crate) fn panics(&self, point: &'static str) {
        locked(&self.panics).push(point);
    }

    /// Opens the folder and begins to read the log.
    pub(crate) async fn start(self: &Arc<Self>) -> anyhow::Result<()> {
        let tasks = self.tasks.clone();
        let spawn = move |task| locked(&tasks).push(tokio::spawn(task));
        let (panics, stage) = (self.panics.clone(), self.stage.clone());
        let failpoints = Failpoints::new(move |point| {
            let due = {
                let mut panics = locked(&panics);
                let at = panics.iter().position(|panics| *panics == point);
                at.map(|at| panics.swap_remove(at)).is_some()
            };
            if due {
                stage.count(if point == failpoint::SKIP_VOIDED { "panic after a skip" } else { "panic in the loop" });
                // Without the panic hook's message, because the panic is planned.
                std::panic::resume_unwind(Box::new("the plan says so"));
            }
        });
        let config = Config {
            failpoints,
            storage: self.storage.clone(),
            memory_bytes: 8 << 20,
            write_schema: self.stage.plan.write_schema(),
            appends_max: self.stage.plan.appends_max(self.id).unwrap_or(APPENDS_MAX),
            executor: Executor::Caller(Arc::new(spawn)),
            // A server that did not create its topic writes no genesis.
            genesis: if self.id == mirror::SERVER { Genesis::Await } else { Genesis::Write },
            ..Config::new(&self.dir, ambient::millis, ambient::id)
        };
        let projector = Projector::start(config, self.link.clone()).await;
        let projector = Arc::new(projector.with_context(|| format!("server {} does not start", self.id))?);
        let options = if self.stage.plan.has_tokens() { grants::options()? } else { Options::default() };
        let router = runlog_server::router_with(projector.clone(), options);
        *locked(&self.running) = Some(Running { projector, router });
        let reads = tokio::spawn(self.clone().read());
        locked(&self.tasks).push(reads);
        self.link.news.notify_one();
        self.stage.tell(|| format!("server {} starts", self.id));
        Ok(())
    }

    /// Its projector; `None` if it is down.
    pub(crate) fn projector(&self) -> Option<Arc<Projector>> {
        locked(&self.running).as_ref().map(|running| running.projector.clone())
    }

    /// Reads the log while there are records to read.
    async fn read(self: Arc<Self>) {
        let mut dice = Dice::new(self.stage.seed(), 50 + u64::from(self.id));
        loop {
            let _ = tokio::time::timeout(LOOP_IDLE, self.link.news.notified()).await;
            loop {
                sleep(Duration::from_millis(dice.delay())).await;
                let records = usize::try_from(dice.between(2, STEP_RECORDS)).unwrap_or(2);
                let projector = locked(&self.running).as_ref().map(|running| running.projector.clone());
                let Some(projector) = projector else { return };
                if projector.step(records) == 0 && !self.link.has_news() {
                    break;
                }
            }
        }
    }

    /// Kills it: all its work stops.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        let running = locked(&self.running).take();
        for task in locked(&self.tasks).drain(..) {
            task.abort();
        }
        let Some(Running { projector, router }) = running else { return Ok(()) };
        drop(router);
        for _ in 0..YIELDS_MAX {
            if Arc::strong_count(&projector) == 1 {
                self.stage.tell(|| format!("server {} is killed", self.id));
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        anyhow::bail!("server {} is still used after it was killed", self.id)
    }

    /// Answers a request in a task of the server, which the returned value can abort. `None` if it is down. A request without a
    /// sender is the harness's.
    pub(crate) fn answer(&self, mut request: Request<Body>) -> Option<Answering> {
        if self.stage.plan.has_tokens()
            && let Ok(harness) = HeaderValue::try_from(Sender::Harness.authorization())
        {
            request.headers_mut().entry(header::AUTHORIZATION).or_insert(harness);
        }
        let router = locked(&self.running).as_ref().map(|running| running.router.clone())?;
        let (send, answer) = oneshot::channel();
        let task = tokio::spawn(async move {
            let Ok(response) = router.oneshot(request).await;
            let (head, body) = response.into_parts();
            if let Ok(body) = axum::body::to_bytes(body, BODY_MAX).await {
                let _ = send.send(axum::http::Response::from_parts(head, body.to_vec()));
            }
        });
        let abort = task.abort_handle();
        let mut tasks = locked(&self.tasks);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        Some(Answering { answer, abort: Some(abort) })
    }
}

/// A request that a server works on. If this is dropped, the server drops the request.
pub(crate) struct Answering {
    answer: oneshot::Receiver<axum::http::Response<Vec<u8>>>,
    abort: Option<tokio::task::AbortHandle>,
}

impl Answering {
    /// The answer; `None` if the server was killed.
    pub(crate) async fn whole(mut self) -> Option<axum::http::Response<Vec<u8>>> {
        let answer = (&mut self.answer).await.ok();
        self.abort = None;
        answer
    }

    /// The server continues when this is dropped.
    pub(crate) fn detach(mut self) {
        self.abort = None;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }
}
