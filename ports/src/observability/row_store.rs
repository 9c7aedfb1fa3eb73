//! Reads the statements about rows, and writes new ones.

use super::{
    fold::{self, END, OfCall, OfTurn, Statement},
    records,
    types::{Config, ConversationTurn, DbError, ToolCall, ToolCallDone, ToolCallReq, Write},
    watch::{Change, Operation, Relation, Row},
};
use crate::{
    WriterPool, confirmed_write,
    record_list::{self, List, Reader},
};
use runlog_producer::{Runlog, Writer, id::RecordId, id::RunId, record::JournalRecord};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

#[derive(Debug)]
pub(super) struct RowStore {
    writers: WriterPool,
    run_id: RunId,
    config: Config,
}

/// A call's key.
type Key<'a> = (Uuid, &'a str);

/// A group of writes; each sees the ones before it.
struct Group<'a> {
    rows: &'a RowStore,
    writer: &'a Writer,
    turns: HashMap<Uuid, Vec<Statement<OfTurn>>>,
    calls: HashMap<(Uuid, String), Vec<Statement<OfCall>>>,
    records: Vec<JournalRecord>,
    changes: Vec<Change>,
}

impl RowStore {
    pub(super) fn new(runlog: Runlog, run_id: RunId, config: Config) -> Self {
        Self { writers: WriterPool::new(runlog), run_id, config }
    }

    fn run(&self) -> &str {
        self.run_id.as_str()
    }

    async fn read(&self, list: List) -> Result<Vec<JournalRecord>, DbError> {
        let (mut records, mut reader) = (Vec::new(), Reader::all(self.writers.runlog(), &self.run_id, list));
        while let Some(page) = reader.page().await? {
            for read in page {
                records.push(read.record?);
            }
        }
        Ok(records)
    }

    async fn of_turn(&self, id: Uuid) -> Result<Vec<Statement<OfTurn>>, DbError> {
        let records = self.read(records::of_turn(self.run(), id)).await?;
        records.iter().map(|record| records::about_turn(record).map(|(_, said)| said)).collect()
    }

    async fn of_call(&self, list: List) -> Result<Vec<Statement<OfCall>>, DbError> {
        let records = self.read(list).await?;
        records.iter().map(|record| records::about_call(record).map(|(_, said)| said)).collect()
    }

    /// The list of the statements about a call.
    fn list(&self, (request_id, call_id): Key<'_>) -> List {
        records::of_call(self.run(), request_id, call_id)
    }

    pub(super) async fn call(&self, key: Key<'_>, at: i64) -> Result<Option<ToolCall>, DbError> {
        Ok(standing(&self.of_call(self.list(key)).await?, at))
    }

    pub(super) async fn since(&self, since: i64, at: i64, limit: usize) -> Result<Vec<ConversationTurn>, DbError> {
        let mut rows: BTreeMap<Uuid, Vec<Statement<OfTurn>>> = BTreeMap::new();
        for record in self.read(records::turns(self.run())).await? {
            let (id, said) = records::about_turn(&record)?;
            rows.entry(id).or_default().push(said);
        }
        let turns = rows.values().filter_map(|statements| fold::turn(statements, at));
        let mut turns: Vec<_> = turns.filter(|turn| turn.created_at.at >= since).collect();
        turns.sort_by_key(|turn| (turn.created_at.at, turn.id));
        turns.truncate(limit);
        Ok(turns)
    }

    pub(super) async fn by_parent(&self, parent: Uuid, at: i64, limit: usize) -> Result<Vec<ToolCall>, DbError> {
        let mut rows: BTreeMap<String, Vec<Statement<OfCall>>> = BTreeMap::new();
        for record in self.read(records::of_parent(self.run(), parent)).await? {
            let (request, said) = records::about_call(&record)?;
            rows.entry(request).or_default().push(said);
        }
        let mut calls = Vec::new();
        for (request, mut statements) in rows {
            let requests = |statement: &Statement<OfCall>| match &statement.said {
                OfCall::Requested(req) => Some(req.clone()),
                _ => None,
            };
            let elsewhere = statements.iter().filter_map(requests).find(|req| req.parent_id != parent);
            let begun = statements.first().is_some_and(|first| first.record_id == request);
            // A call that was moved between messages has statements in both messages' lists.
            if elsewhere.is_some() || !begun {
                let Some(req) = elsewhere.or_else(|| statements.iter().find_map(requests)) else { continue };
                statements = self.of_call(self.list((req.request_id, &req.call_id))).await?;
            }
            calls.extend(standing(&statements, at).filter(|(req, _)| req.parent_id == parent));
        }
        calls.sort_by_key(|(req, _)| (std::cmp::Reverse(req.started_at.at), req.request_id, req.call_id.clone()));
        calls.truncate(limit);
        Ok(calls)
    }

    /// Writes the group's rows that change something, and returns the changes.
    pub(super) async fn write(&self, writes: Vec<Write>) -> Result<Vec<Change>, DbError> {
        // Claims the run before anything is read: after the claim no other process writes.
        let writer = self.writers.writer(&self.run_id).await?;
        let (turns, calls) = (HashMap::new(), HashMap::new());
        let (records, changes) = (Vec::new(), Vec::new());
        let mut group = Group { rows: self, writer: &writer, turns, calls, records, changes };
        for write in writes {
            match write {
                Write::Turn(turn) => Box::pin(group.turn(&turn)).await?,
                Write::Requested(req) => Box::pin(group.requested(&req)).await?,
                Write::Done(done) => Box::pin(group.done(&done)).await?,
            }
        }
        let Group { mut records, changes, .. } = group;
        match records.len() {
            0 => {}
            1 => {
                let record = records.remove(0);
                confirmed_write::write(&writer, record).await?;
            }
            _ => {
                let name = format!("group/{}", Uuid::new_v4());
                let name = RecordId::new(name).map_err(runlog_producer::Error::from)?;
                confirmed_write::batch(&writer, name, records).await?;
            }
        }
        Ok(changes)
    }

    pub(super) async fn retract_turn(&self, id: Uuid, at: i64, said: (&str, &str)) -> Result<Change, DbError> {
        let writer = self.writers.writer(&self.run_id).await?;
        let mut statements = self.of_turn(id).await?;
        fold::turn(&statements, at).ok_or(DbError::NotThere)?;
        let stated = statements.iter().rev().find(|statement| statement.said.is_some()).ok_or(DbError::NotThere)?;
        let mut record = records::retraction(&writer, &stated.record_id, at, said)?;
        record.body.turn_id = Some(id.to_string());
        record_list::add(&mut record, &[records::of_turn(self.run(), id), records::turns(self.run())]);
        let (_, old, new) = state(&mut statements, records::about_turn(&record)?.1, fold::turn);
        confirmed_write::write(&writer, record).await?;
        Ok(of_turn(old, new))
    }

    pub(super) async fn retract_call(&self, key: Key<'_>, at: i64, said: (&str, &str)) -> Result<Change, DbError> {
        let writer = self.writers.writer(&self.run_id).await?;
        let list = self.list(key);
        let mut statements = self.of_call(list.clone()).await?;
        let (req, _) = standing(&statements, at).ok_or(DbError::NotThere)?;
        let request = records::request_id(key.0, &list)?;
        let mut record = records::retraction(&writer, request.as_str(), at, said)?;
        self.put_call(&mut record, list, &[req.parent_id]);
        let (_, old, new) = state(&mut statements, records::about_call(&record)?.1, standing);
        confirmed_write::write(&writer, record).await?;
        Ok(of_call(old, new))
    }

    fn put_call(&self, record: &mut JournalRecord, list: List, parents: &[Uuid]) {
        let parents = parents.iter().map(|parent| records::of_parent(self.run(), *parent));
        let lists: Vec<List> = std::iter::once(list).chain(parents).collect();
        record_list::add(record, &lists);
    }
}

impl Group<'_> {
    async fn turn(&mut self, turn: &ConversationTurn) -> Result<(), DbError> {
        if !self.turns.contains_key(&turn.id) {
            self.turns.insert(turn.id, self.rows.of_turn(turn.id).await?);
        }
        let statements = self.turns.entry(turn.id).or_default();
        let mut record = records::turn(self.writer, turn, self.rows.config.content)?;
        let run = self.rows.run();
        record_list::add(&mut record, &[records::of_turn(run, turn.id), records::turns(run)]);
        let stated = statements.iter().any(|statement| statement.said.as_ref() == Some(turn));
        let (changed, old, new) = state(statements, records::about_turn(&record)?.1, fold::turn);
        if stated && !changed {
            statements.pop();
            return Ok(());
        }
        self.records.push(record);
        self.changes.push(of_turn(old, new));
        Ok(())
    }

    /// The statements about a call. With `requests`, the id of its request, that record is looked up first, which is
    /// cheaper than reading the list: a call's request precedes every statement about it.
    async fn statements(
        &mut self,
        (request_id, call_id): Key<'_>,
        list: &List,
        requests: Option<&RecordId>,
    ) -> Result<&mut Vec<Statement<OfCall>>, DbError> {
        let key = (request_id, call_id.to_owned());
        if !self.calls.contains_key(&key) {
            let rows = self.rows;
            let new = match requests {
                Some(id) => rows.writers.runlog().landed(&rows.run_id, id).await?.is_none(),
                None => false,
            };
            let statements = if new { Vec::new() } else { Box::pin(rows.of_call(list.clone())).await? };
            self.calls.insert(key.clone(), statements);
        }
        Ok(self.calls.entry(key).or_default())
    }

    async fn requested(&mut self, req: &ToolCallReq) -> Result<(), DbError> {
        let (rows, writer, content) = (self.rows, self.writer, self.rows.config.content);
        let key = (req.request_id, req.call_id.as_str());
        let (req, arguments) = records::kept(req, content)?;
        let list = rows.list(key);
        let id = records::request_id(key.0, &list)?;
        let statements = self.statements(key, &list, Some(&id)).await?;
        let last = last_request(statements).map(|last| last.parent_id);
        let mut record = match last {
            None => records::requested(writer, id, (&req, arguments), content)?,
            Some(_) => records::updated(writer, &id, &req, content)?,
        };
        let parents = [Some(req.parent_id), last.filter(|parent| *parent != req.parent_id)];
        rows.put_call(&mut record, list, &parents.into_iter().flatten().collect::<Vec<_>>());
        let stated =
            statements.iter().any(|statement| matches!(&statement.said, OfCall::Requested(said) if *said == req));
        let (validity, record_id) = (req.started_at, record.body.record_id.as_str().to_owned());
        let statement = Statement { validity, record_id, said: OfCall::Requested(req) };
        // Nothing can change in an ended call but other fields: a repeat with a later start is the same request.
        let ended = validity.is_valid && fold::end(statements).is_some_and(|(end, _)| end.ended_at.at < validity.at);
        let (changed, old, new) = state(statements, statement, standing);
        if (stated || ended) && !changed {
            statements.pop();
            return Ok(());
        }
        self.records.push(record);
        self.changes.push(of_call(old, new));
        Ok(())
    }

    async fn done(&mut self, done: &ToolCallDone) -> Result<(), DbError> {
        let (rows, writer, content) = (self.rows, self.writer, self.rows.config.content);
        let key = (done.request_id, done.call_id.as_str());
        if !done.ended_at.is_valid {
            return Err(DbError::Invalid("an end is asserted; what is not true is retracted with its call".into()));
        }
        let list = rows.list(key);
        let request = records::request_id(key.0, &list)?;
        let mut record = records::done(writer, request.as_str(), done, content)?;
        let statements = self.statements(key, &list, None).await?;
        let parent = last_request(statements).map(|last| last.parent_id);
        let parent = parent
            .ok_or_else(|| DbError::NotRequested { request_id: done.request_id, call_id: done.call_id.clone() })?;
        rows.put_call(&mut record, list, &[parent]);
        let said = records::about_call(&record)?.1;
        if let Some(end) = fold::end(statements) {
            let again = fold::end(std::slice::from_ref(&said)).is_some_and(|said| same(end, said));
            let (request_id, call_id, status) = (done.request_id, done.call_id.clone(), end.0.status);
            return if again { Ok(()) } else { Err(DbError::Ended { request_id, call_id, status }) };
        }
        if fold::is_retracted(statements, done.ended_at.at) {
            let (request_id, call_id) = (done.request_id, done.call_id.clone());
            return Err(DbError::Retracted { request_id, call_id, at: done.ended_at.at });
        }
        let (_, old, new) = state(statements, said, standing);
        self.records.push(record);
        self.changes.push(of_call(old, new));
        Ok(())
    }
}

/// Adds a statement: whether it changes the row at any time, and the row before and after it: as of the end of time, or, if
/// only the past changes, as of the statement's time. A row changes at statements' times only, so between this one and the
/// next later one it is as it is at this one.
fn state<T, R: PartialEq>(
    statements: &mut Vec<Statement<T>>,
    statement: Statement<T>,
    row: impl Fn(&[Statement<T>], i64) -> Option<R>,
) -> (bool, Option<R>, Option<R>) {
    let at = statement.validity.at;
    let then = row(statements, at);
    let last = row(statements, END);
    statements.push(statement);
    let (new_then, new_last) = (row(statements, at), row(statements, END));
    if last == new_last { (then != new_then, then, new_then) } else { (true, last, new_last) }
}

/// Whether two ends are the same, apart from their times.
fn same((end, hash): (&ToolCallDone, Option<&str>), (other, others): (&ToolCallDone, Option<&str>)) -> bool {
    let said = |done: &ToolCallDone| (done.status, done.latency_ms, done.error_kind.clone(), done.error_msg.clone());
    said(end) == said(other) && hash == others
}

fn last_request(statements: &[Statement<OfCall>]) -> Option<&ToolCallReq> {
    statements.iter().rev().find_map(|statement| match &statement.said {
        OfCall::Requested(req) => Some(req),
        _ => None,
    })
}

/// The call as of a time. Its end carries the key of its request.
fn standing(statements: &[Statement<OfCall>], at: i64) -> Option<ToolCall> {
    let (req, done) = fold::call(statements, at)?;
    let named = |done| ToolCallDone { request_id: req.request_id, call_id: req.call_id.clone(), ..done };
    let done = done.map(named);
    Some((req, done))
}

fn operation<T>(new: Option<&T>) -> Operation {
    if new.is_some() { Operation::Put } else { Operation::Rm }
}

fn of_turn(old: Option<ConversationTurn>, new: Option<ConversationTurn>) -> Change {
    let operation = operation(new.as_ref());
    let (old, new) = (old.map(Row::Turn), new.map(Row::Turn));
    Change { relation: Relation::ConversationTurns, operation, new, old, missed: 0 }
}

fn of_call(old: Option<ToolCall>, new: Option<ToolCall>) -> Change {
    let operation = operation(new.as_ref());
    let row = |call: Option<ToolCall>| call.map(|call| Row::Call(Box::new(call)));
    Change { relation: Relation::ToolCalls, operation, new: row(new), old: row(old), missed: 0 }
}
