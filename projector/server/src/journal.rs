//! `GET /v1/journal`: the journal and its home, and the features of this server.

use super::{app::App, parameters::Nothing};
use axum::{Json, extract::Query};
use runlog_projector::index::home::{HomeState, Role};
use runlog_schemas::{
    answer::{Feature, Journal, JournalHome, LogRole, OrOther},
    codec::{Framing, RECORD_BYTES_MAX},
    datum::hex,
    id::LogId,
    schema,
};
use std::collections::BTreeMap;

pub(super) async fn get(app: App, _: Query<Nothing>) -> Json<Journal> {
    let journal = app.projector.journal();
    let written = schema::lowest();
    let schema_ids = match app.projector.config().schemas.framing(written) {
        Ok(Framing::Confluent(id)) => BTreeMap::from([(hex(&written.fingerprint), id)]),
        Ok(Framing::SingleObject) | Err(_) => BTreeMap::new(),
    };
    Json(Journal {
        topic: app.projector.log().topic().to_owned(),
        journal_id: journal.journal_id.clone(),
        partitions: journal.partitions,
        schemas: schema::versions().iter().map(|version| hex(&version.fingerprint)).collect(),
        schema_ids,
        payload_bytes_max: app.projector.content().map_or(RECORD_BYTES_MAX, |_| runlog_content::CONTENT_BYTES_MAX)
            as u64,
        features: Feature::ALL
            .iter()
            .copied()
            .filter(|feature| app.projector.has(*feature))
            .map(OrOther::from)
            .collect(),
        log_id: app.projector.log().id().cloned(),
        home: home(app.projector.home()),
        role: role(app.projector.home()).into(),
    })
}

/// The home in force.
pub(super) fn home(state: &HomeState) -> Option<JournalHome> {
    let row = state.known()?;
    Some(JournalHome { log: LogId::parse(&row.log).ok()?, epoch: row.epoch })
}

/// The role of this server, as answers name it.
pub(super) fn role(state: &HomeState) -> LogRole {
    match state.role() {
        Role::Unknown => LogRole::Unknown,
        Role::Home => LogRole::Home,
        // It answers as a mirror until its restart.
        Role::Mirror | Role::Uncommitted => LogRole::Mirror,
        Role::Contested => LogRole::Contested,
    }
}
