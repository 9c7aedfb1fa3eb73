//! Content that is uploaded before the record that names it, and which records may name it.
//!
//! With tokens, a record may name stored content only if a receipt proves that its sender uploaded the content for the
//! run, or if the sender may read the content anyway. Otherwise anyone who knows a hash could read the content of
//! others, or learn whether it exists.

use super::{
    app::App,
    auth::{limits::Limit, receipts::Upload},
    body,
    parameters::Patience,
    problem::Refusal,
};
use axum::{
    Json,
    extract::{Path, Query, Request},
    http::{HeaderMap, HeaderName},
};
use runlog_projector::index::{
    error::Error,
    query::{self, time},
};
use runlog_schemas::{
    answer::{ErrorKind, Uploaded},
    draft::Draft,
    id::RunId,
    json::Json as RunlogJson,
    payload::{Payload, StoredPayload},
    record::JournalRecord,
};

/// The receipts of a request's records, in any order, separated by commas.
const RECEIPT: HeaderName = HeaderName::from_static("runlog-receipt");
/// Receipts of a request.
const RECEIPTS_MAX: usize = 64;

/// Stores the payload of a record that will be appended, and answers with the fields that replace it.
pub(super) async fn upload(
    app: App,
    Path(run_id): Path<RunId>,
    Query(patience): Query<Patience>,
    request: Request,
) -> Result<Json<Uploaded>, Refusal> {
    let (body, _memory) = body::read_records(&app, request, patience.deadline()).await?;
    let invalid = |message: String| Error::new(ErrorKind::Invalid, message);
    let Draft { mut record, .. } = Draft::parse_new(&body).map_err(|error| invalid(format!("the record: {error}")))?;
    drop(body);
    if record.body.run_id.borrow() != Some(run_id.borrow()) {
        return Err(invalid(format!("the record names run {}, the request names {run_id}", record.body.run_id)).into());
    }
    let Some(store) = app.projector.content() else {
        return Err(invalid("this server has no content store (--content): append the record whole".to_owned()).into());
    };
    let Some(content) = record.detach(0) else {
        let kind = record.body.record_kind.as_str();
        return Err(invalid(format!(
            "the payload of this {kind} cannot be in a content store: append the record whole"
        ))
        .into());
    };
    let Payload::StoredPayload(stored) = &record.payload else {
        return Err(Error::new(ErrorKind::Internal, "a payload was detached and left no claim check").into());
    };
    app.caller.take(Limit::ContentBytesPerDay, content.len() as u64)?;
    store.within(patience.deadline()).put(content).await.map_err(Error::from)?;
    let upload = Upload { journal_id: &app.projector.journal().journal_id, run_id: run_id.borrow(), stored };
    let (receipt, expires) = app.caller.receipt(upload).unzip();
    let json = |json: Result<RunlogJson, serde_json::Error>| {
        json.map_err(|error| Error::new(ErrorKind::Internal, "an upload does not serialise").because(error))
    };
    Ok(Json(Uploaded {
        record_kind: record.body.record_kind.as_str().to_owned(),
        facts: json(RunlogJson::of(&record.body.facts))?,
        payload: json(RunlogJson::of(&record.payload))?,
        receipt,
        expires: expires.map(time),
    }))
}

/// Reads the receipts of a request.
///
/// Errors: `Usage` if there are too many.
pub(super) fn receipts(headers: &HeaderMap) -> Result<Vec<String>, Error> {
    let values = headers.get_all(RECEIPT).iter().filter_map(|value| value.to_str().ok());
    let receipts: Vec<String> = values.flat_map(|value| value.split(',')).map(|text| text.trim().to_owned()).collect();
    if receipts.len() > RECEIPTS_MAX {
        return Err(Error::new(ErrorKind::Usage, format!("a request has at most {RECEIPTS_MAX} receipts")));
    }
    Ok(receipts)
}

/// Refuses records that name content without one of three proofs: a receipt; the permission to read all runs; or a run
/// that already contains the content and that the caller may read.
///
/// Errors: `Forbidden`, in the same words whether the content exists or not.
pub(super) async fn may_name(
    app: &App,
    run_id: RunId<&str>,
    drafts: &[Draft],
    receipts: &[String],
) -> Result<(), Error> {
    for stored in drafts.iter().flat_map(|draft| stored_payloads(&draft.record)) {
        let upload = Upload { journal_id: &app.projector.journal().journal_id, run_id, stored };
        let caller = &app.caller;
        if caller.reads_all_content() || receipts.iter().any(|receipt| caller.proves(receipt, upload)) {
            continue;
        }
        let (run, wanted) = (run_id.to_owned(), stored.clone());
        if caller.reads_content_of(run_id) && app.read(move |app| has_content(app, run.borrow(), &wanted)).await? {
            continue;
        }
        return Err(Error::new(
            ErrorKind::Forbidden,
            "a record names content without a receipt of its upload to this run: upload it (POST /v1/runs/{run}/contents), and \
             send the receipt as Runlog-Receipt; or send the payload whole",
        ));
    }
    Ok(())
}

/// Returns the contents that a record or the records of its batch name.
fn stored_payloads(record: &JournalRecord) -> impl Iterator<Item = &StoredPayload> {
    let members = match &record.payload {
        Payload::Batch(batch) => batch.records.as_slice(),
        _ => &[],
    };
    [record].into_iter().chain(members).filter_map(|record| match &record.payload {
        Payload::StoredPayload(stored) => Some(stored),
        _ => None,
    })
}

/// Whether a run that the caller may see contains the content. Blocking.
fn has_content(app: &App, run_id: RunId<&str>, wanted: &StoredPayload) -> Result<bool, Error> {
    let store = app.projector.store(app.projector.partition_of(run_id))?;
    query::contents::contains(&app.rows(&store, run_id), run_id, wanted)
}
