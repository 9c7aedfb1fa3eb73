//! `GET /v1/journal`: the journal, and the features of this server.

use super::{app::App, parameters::Nothing};
use axum::{Json, extract::Query};
use runlog_schemas::{
    answer::{Feature, Journal, OrOther},
    codec::{Framing, RECORD_BYTES_MAX},
    datum::hex,
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
    })
}
