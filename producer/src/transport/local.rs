//! Log and projector inside this process.

use super::{AppendFailed, Appended};
use crate::{Action, Config, Error};
use runlog_projector::{Consistency, Projector, open, query};
use runlog_schemas::{
    answer::{ErrorKind, Lookup, Position, ReadBack, Recovery},
    record::JournalRecord,
};
use std::{path::Path, time::Duration};

/// A journal in a folder. One process at a time has it.
#[derive(Debug)]
pub(crate) struct Local {
    projector: Projector,
    deadline: Duration,
}

fn error(error: &runlog_projector::Error) -> Error {
    error.problem().into()
}

impl Local {
    pub(crate) async fn open(dir: &Path, config: &Config) -> Result<Self, Error> {
        let settings = runlog_projector::Config::new(dir, config.clock, config.ids);
        let projector = open::local(settings).await.map_err(|failed| error(&failed))?;
        Ok(Self { projector, deadline: config.deadline })
    }

    pub(crate) async fn append(&self, record: &JournalRecord) -> Result<Appended, AppendFailed> {
        let refused = |failed| AppendFailed { error: error(&failed), untouched: true };
        let entry = self.projector.entry(record).map_err(refused)?;
        let partition = self.projector.partition_of(&record.body.run_id);
        let offsets = self.projector.log().append(partition, vec![entry]).await.map_err(|failed| {
            let untouched = matches!(failed.kind(), runlog_log::Kind::Retry | runlog_log::Kind::Invalid);
            let failed = runlog_projector::Error::from(failed);
            AppendFailed { error: error(&failed), untouched }
        })?;
        let offset = offsets.first().copied().unwrap_or_default();
        Ok(Appended { position: self.projector.position(partition, offset, 0), outcome: None })
    }

    pub(crate) async fn read_back(
        &self,
        run_id: &str,
        position: &Position,
        record_id: &str,
        deadline: Duration,
    ) -> Result<ReadBack, Error> {
        let asked = self.projector.read_back(run_id, position, record_id, Consistency::Latest, deadline);
        asked.await.map_err(|failed| error(&failed))
    }

    async fn fresh(&self, run_id: &str) -> Result<u32, Error> {
        let partition = self.projector.partition_of(run_id);
        let wait = self.projector.wait(partition, Consistency::Latest, self.deadline);
        wait.await.map_err(|failed| error(&failed))?;
        Ok(partition)
    }

    pub(crate) async fn recovery(
        &self,
        run_id: &str,
        from_start: bool,
        cursor: Option<&str>,
    ) -> Result<Option<Recovery>, Error> {
        let partition = self.fresh(run_id).await?;
        let store = self.projector.store(partition);
        let place = query::Place { topic: self.projector.log().topic(), partition };
        let cursor = query::parse_cursor(cursor).map_err(|failed| error(&failed))?;
        let ask = query::recovery::Ask { full: true, from_start, limit: query::LIMIT_MAX };
        query::recovery::one(&store.view(), place, run_id, ask, cursor.as_deref()).map_err(|failed| error(&failed))
    }

    pub(crate) async fn call(&self, run_id: &str, id: &str) -> Result<Lookup, Error> {
        let partition = self.fresh(run_id).await?;
        let store = self.projector.store(partition);
        let place = query::Place { topic: self.projector.log().topic(), partition };
        let found = query::lookup::by_request(&store.view(), place, run_id, id).map_err(|failed| error(&failed))?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, Action::Operator, format!("run {run_id} has no call {id}")))
    }
}
