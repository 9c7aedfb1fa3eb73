//! Finds the claims of a run's epochs, which say who claimed the run.

use super::Content;
use crate::index::{
    error::Error,
    store::{self, Rows, horizons::Horizons, records::ClaimRow},
};
use runlog_schemas::{
    id::{Epoch, RunId, WriterId},
    payload::{Payload, RunClaim},
};
use std::{cell::RefCell, collections::HashMap, rc::Rc};

/// None for an epoch without an applied claim.
type ByEpoch = HashMap<(RunId, Epoch), Option<Rc<RunClaim>>>;

/// The claims that a page names. Each is read once, with two gets.
pub(super) struct Claims<'a, R> {
    pub(super) rows: &'a R,
    horizons: &'a Horizons,
    read: RefCell<ByEpoch>,
}

impl<'a, R: Rows> Claims<'a, R> {
    pub(super) fn new(rows: &'a R, horizons: &'a Horizons) -> Self {
        Self { rows, horizons, read: RefCell::default() }
    }

    /// The applied claim of a writer in an epoch. If a skip voids a claim, another writer's claim can have its epoch.
    pub(super) fn claim(
        &self,
        run_id: RunId<&str>,
        epoch: Epoch,
        writer_id: Option<WriterId<&str>>,
    ) -> Result<Option<Rc<RunClaim>>, Error> {
        let key = (run_id.to_owned(), epoch);
        let cached = self.read.borrow().get(&key).cloned();
        let claim = match cached {
            Some(claim) => claim,
            None => {
                let claim = self.read(run_id, epoch)?.map(Rc::new);
                self.read.borrow_mut().insert(key, claim.clone());
                claim
            }
        };
        Ok(claim.filter(|claim| Some(claim.writer_id.borrow()) == writer_id))
    }

    fn read(&self, run_id: RunId<&str>, epoch: Epoch) -> Result<Option<RunClaim>, Error> {
        let Some(row) = self.rows.get::<ClaimRow>(&store::records::claim(run_id, epoch))? else { return Ok(None) };
        let record = super::record(self.rows, self.horizons, run_id, (row.offset, 0))?;
        Ok(record.and_then(|record| match record.payload {
            Content::Available(Payload::RunClaim(claim)) => Some(claim),
            _ => None,
        }))
    }
}
