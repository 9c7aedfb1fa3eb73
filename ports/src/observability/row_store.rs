//! Reads the statements about rows, and writes new statements.

use super::{
    fold::{self, CallEvent, END, Statement, TurnEvent},
    records,
    types::{Config, ConversationTurn, DbError, ToolCall, ToolCallDone, ToolCallReq, Write},
    watch::{Change, Operation, Relation, Row},
};
use crate::{
    confirmed_write,
    record_list::{self, List, Reader},
    writer_pool::WriterPool,
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

/// A group of writes; each sees the writes before it.
struct Group<'a> {
    rows: &'a RowStore,
    writer: &'a Writer,
    turns: HashMap<Uuid, Vec<Statement<TurnEvent>>>,
    calls: HashMap<(Uuid, String), Vec<Statement<CallEvent>>>,
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

    async fn turn_statements(&self, id: Uuid) -> Result<Vec<Statement<TurnEvent>>, DbError> {
        let records = self.read(records::turn_list(self.run(), id)).await?;
        records.iter().map(|record| records::turn_statement(record).map(|(_, statement)| statement)).collect()
    }

    async fn call_statements(&self, list: List) -> Result<Vec<Statement<CallEvent>>, DbError> {
        let records = self.read(list).await?;
        records.iter().map(|record| records::call_statement(record).map(|(_, statement)| statement)).collect()
    }

    /// The list of the statements about a call.
    fn list(&self, (request_id, call_id): Key<'_>) -> List {
        records::call_list(self.run(), request_id, call_id)
    }

    pub(super) async fn call(&self, key: Key<'_>, at: i64) -> Result<Option<ToolCall>, DbError> {
        Ok(call_with_key(&self.call_statements(self.list(key)).await?, at))
    }

    pub(super) async fn since(&self, since: i64, at: i64, limit: usize) -> Result<Vec<ConversationTurn>, DbError> {
        let mut rows: BTreeMap<Uuid, Vec<Statement<TurnEvent>>> = BTreeMap::new();
        for record in self.read(records::turns_list(self.run())).await? {
            let (id, statement) = records::turn_statement(&record)?;
            rows.entry(id).or_default().push(statement);
        }
        let turns = rows.values().filter_map(|statements| fold::turn_at(statements, at));
        let mut turns: Vec<_> = turns.filter(|turn| turn.created_at.at >= since).collect();
        turns.sort_by_key(|turn| (turn.created_at.at, turn.id));
        turns.truncate(limit);
        Ok(turns)
    }

    pub(super) async fn by_parent(&self, parent: Uuid, at: i64, limit: usize) -> Result<Vec<ToolCall>, DbError> {
        let mut rows: BTreeMap<String, Vec<Statement<CallEvent>>> = BTreeMap::new();
        for record in self.read(records::parent_list(self.run(), parent)).await? {
            let (request, statement) = records::call_statement(&record)?;
            rows.entry(request).or_default().push(statement);
        }
        let mut calls = Vec::new();
        for (request, mut statements) in rows {
            let requests = |statement: &Statement<CallEvent>| match &statement.event {
                CallEvent::Requested(req) => Some(req.clone()),
                _ => None,
            };
            let elsewhere = statements.iter().filter_map(requests).find(|req| req.parent_id != parent);
            let starts_here = statements.first().is_some_and(|first| first.record_id == request);
            // A call that was moved between messages has statements in both messages' lists.
            if elsewhere.is_some() || !starts_here {
                let Some(req) = elsewhere.or_else(|| statements.iter().find_map(requests)) else { continue };
                statements = self.call_statements(self.list((req.request_id, &req.call_id))).await?;
            }
            calls.extend(call_with_key(&statements, at).filter(|(req, _)| req.parent_id == parent));
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
                Write::Turn(turn) => Box::pin(group.put_turn(&turn)).await?,
                Write::Requested(req) => Box::pin(group.put_request(&req)).await?,
                Write::Done(done) => Box::pin(group.put_end(&done)).await?,
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

    pub(super) async fn retract_turn(&self, id: Uuid, at: i64, attribution: (&str, &str)) -> Result<Change, DbError> {
        let writer = self.writers.writer(&self.run_id).await?;
        let mut statements = self.turn_statements(id).await?;
        fold::turn_at(&statements, at).ok_or(DbError::NotThere)?;
        let last_assertion =
            statements.iter().rev().find(|statement| statement.event.is_some()).ok_or(DbError::NotThere)?;
        let mut record = records::retraction_record(&writer, &last_assertion.record_id, at, attribution)?;
        record.body.turn_id = Some(id.to_string());
        record_list::add(&mut record, &[records::turn_list(self.run(), id), records::turns_list(self.run())]);
        let (_, old, new) = add_statement(&mut statements, records::turn_statement(&record)?.1, fold::turn_at);
        confirmed_write::write(&writer, record).await?;
        Ok(turn_change(old, new))
    }

    pub(super) async fn retract_call(
        &self,
        key: Key<'_>,
        at: i64,
        attribution: (&str, &str),
    ) -> Result<Change, DbError> {
        let writer = self.writers.writer(&self.run_id).await?;
        let list = self.list(key);
        let mut statements = self.call_statements(list.clone()).await?;
        let (req, _) = call_with_key(&statements, at).ok_or(DbError::NotThere)?;
        let request = records::request_id(key.0, &list)?;
        let mut record = records::retraction_record(&writer, request.as_str(), at, attribution)?;
        self.put_call(&mut record, list, &[req.parent_id]);
        let (_, old, new) = add_statement(&mut statements, records::call_statement(&record)?.1, call_with_key);
        confirmed_write::write(&writer, record).await?;
        Ok(call_change(old, new))
    }

    fn put_call(&self, record: &mut JournalRecord, list: List, parents: &[Uuid]) {
        let parents = parents.iter().map(|parent| records::parent_list(self.run(), *parent));
        let lists: Vec<List> = std::iter::once(list).chain(parents).collect();
        record_list::add(record, &lists);
    }
}

impl Group<'_> {
    async fn put_turn(&mut self, turn: &ConversationTurn) -> Result<(), DbError> {
        if !self.turns.contains_key(&turn.id) {
            self.turns.insert(turn.id, self.rows.turn_statements(turn.id).await?);
        }
        let statements = self.turns.entry(turn.id).or_default();
        let mut record = records::turn_record(self.writer, turn, self.rows.config.content)?;
        let run = self.rows.run();
        record_list::add(&mut record, &[records::turn_list(run, turn.id), records::turns_list(run)]);
        let is_recorded = statements.iter().any(|statement| statement.event.as_ref() == Some(turn));
        let (changed, old, new) = add_statement(statements, records::turn_statement(&record)?.1, fold::turn_at);
        if is_recorded && !changed {
            statements.pop();
            return Ok(());
        }
        self.records.push(record);
        self.changes.push(turn_change(old, new));
        Ok(())
    }

    /// The statements about a call. With `requests`, the id of its request, that record is looked up first, which is
    /// cheaper than reading the list: a call's request precedes every statement about it.
    async fn statements(
        &mut self,
        (request_id, call_id): Key<'_>,
        list: &List,
        requests: Option<&RecordId>,
    ) -> Result<&mut Vec<Statement<CallEvent>>, DbError> {
        let key = (request_id, call_id.to_owned());
        if !self.calls.contains_key(&key) {
            let rows = self.rows;
            let new = match requests {
                Some(id) => rows.writers.runlog().landed(&rows.run_id, id).await?.is_none(),
                None => false,
            };
            let statements = if new { Vec::new() } else { Box::pin(rows.call_statements(list.clone())).await? };
            self.calls.insert(key.clone(), statements);
        }
        Ok(self.calls.entry(key).or_default())
    }

    async fn put_request(&mut self, req: &ToolCallReq) -> Result<(), DbError> {
        let (rows, writer, content) = (self.rows, self.writer, self.rows.config.content);
        let key = (req.request_id, req.call_id.as_str());
        let (req, arguments) = records::stored_request(req, content)?;
        let list = rows.list(key);
        let id = records::request_id(key.0, &list)?;
        let statements = self.statements(key, &list, Some(&id)).await?;
        let last = last_request(statements).map(|last| last.parent_id);
        let mut record = match last {
            None => records::request_record(writer, id, (&req, arguments), content)?,
            Some(_) => records::update_record(writer, &id, &req, content)?,
        };
        let parents = [Some(req.parent_id), last.filter(|parent| *parent != req.parent_id)];
        rows.put_call(&mut record, list, &parents.into_iter().flatten().collect::<Vec<_>>());
        let is_recorded = statements
            .iter()
            .any(|statement| matches!(&statement.event, CallEvent::Requested(recorded) if *recorded == req));
        let (validity, record_id) = (req.started_at, record.body.record_id.as_str().to_owned());
        let statement = Statement { validity, record_id, event: CallEvent::Requested(req) };
        // Nothing can change in an ended call but other fields: a repeat with a later start is the same request.
        let ended = validity.is_valid && fold::end(statements).is_some_and(|(end, _)| end.ended_at.at < validity.at);
        let (changed, old, new) = add_statement(statements, statement, call_with_key);
        if (is_recorded || ended) && !changed {
            statements.pop();
            return Ok(());
        }
        self.records.push(record);
        self.changes.push(call_change(old, new));
        Ok(())
    }

    async fn put_end(&mut self, done: &ToolCallDone) -> Result<(), DbError> {
        let (rows, writer, content) = (self.rows, self.writer, self.rows.config.content);
        let key = (done.request_id, done.call_id.as_str());
        if !done.ended_at.is_valid {
            return Err(DbError::Invalid("an end cannot be retracted alone; retract its call".into()));
        }
        let list = rows.list(key);
        let request = records::request_id(key.0, &list)?;
        let mut record = records::end_record(writer, request.as_str(), done, content)?;
        let statements = self.statements(key, &list, None).await?;
        let parent = last_request(statements).map(|last| last.parent_id);
        let parent = parent
            .ok_or_else(|| DbError::NotRequested { request_id: done.request_id, call_id: done.call_id.clone() })?;
        rows.put_call(&mut record, list, &[parent]);
        let statement = records::call_statement(&record)?.1;
        if let Some(end) = fold::end(statements) {
            let again = fold::end(std::slice::from_ref(&statement)).is_some_and(|other| same(end, other));
            let (request_id, call_id, status) = (done.request_id, done.call_id.clone(), end.0.status);
            return if again { Ok(()) } else { Err(DbError::Ended { request_id, call_id, status }) };
        }
        if fold::is_retracted(statements, done.ended_at.at) {
            let (request_id, call_id) = (done.request_id, done.call_id.clone());
            return Err(DbError::Retracted { request_id, call_id, at: done.ended_at.at });
        }
        let (_, old, new) = add_statement(statements, statement, call_with_key);
        self.records.push(record);
        self.changes.push(call_change(old, new));
        Ok(())
    }
}

/// Adds a statement. Returns whether it changes the row at any time, and the row before and after it: as of the end of time,
/// or, if only the past changes, as of the statement's time. A row changes only at the times of statements, so it stays the
/// same until the next later statement.
fn add_statement<T, R: PartialEq>(
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
    let outcome = |done: &ToolCallDone| (done.status, done.latency_ms, done.error_kind.clone(), done.error_msg.clone());
    outcome(end) == outcome(other) && hash == others
}

fn last_request(statements: &[Statement<CallEvent>]) -> Option<&ToolCallReq> {
    statements.iter().rev().find_map(|statement| match &statement.event {
        CallEvent::Requested(req) => Some(req),
        _ => None,
    })
}

/// The call as of a time. Its end carries the key of its request.
fn call_with_key(statements: &[Statement<CallEvent>], at: i64) -> Option<ToolCall> {
    let (req, done) = fold::call_at(statements, at)?;
    let named = |done| ToolCallDone { request_id: req.request_id, call_id: req.call_id.clone(), ..done };
    let done = done.map(named);
    Some((req, done))
}

fn operation<T>(new: Option<&T>) -> Operation {
    if new.is_some() { Operation::Put } else { Operation::Rm }
}

fn turn_change(old: Option<ConversationTurn>, new: Option<ConversationTurn>) -> Change {
    let operation = operation(new.as_ref());
    let (old, new) = (old.map(Row::Turn), new.map(Row::Turn));
    Change { relation: Relation::ConversationTurns, operation, new, old, missed: 0 }
}

fn call_change(old: Option<ToolCall>, new: Option<ToolCall>) -> Change {
    let operation = operation(new.as_ref());
    let row = |call: Option<ToolCall>| call.map(|call| Row::Call(Box::new(call)));
    Change { relation: Relation::ToolCalls, operation, new: row(new), old: row(old), missed: 0 }
}
