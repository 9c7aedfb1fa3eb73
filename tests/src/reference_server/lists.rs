//! Lists, timelines and facts.

use super::{Answer, ParsedRequest, Reply, State, canonical, not_found, ok, problem};
use runlog_model::{EventFilter, Model};
use serde_json::{Value, json};

/// The members of payloads that are content.
const CONTENT: [&str; 8] = ["content", "arguments", "result", "messages", "state", "error_message", "diffs", "op"];

/// Partition and offset of `P:O` or `P:O:I`.
pub(super) fn parse_place(text: &str) -> Option<(u32, u64)> {
    let mut parts = text.split(':');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Milliseconds since the Unix epoch of `YYYY-MM-DDTHH:MM:SSZ`; days by the civil calendar.
pub(super) fn millis(time: &str) -> Option<i64> {
    let number = |from: usize, to: usize| time.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    Some((days * 86_400 + seconds) * 1000)
}

/// The limit of a page.
pub(super) fn page(request: &ParsedRequest, state: &State) -> Result<usize, Reply> {
    let Some(limit) = request.get("limit") else { return Ok(100) };
    let limit: usize = limit.parse().map_err(|_| problem(400, "usage", "no limit"))?;
    if state.is_wrong("limits_refused") {
        return Ok(limit.clamp(1, 1000));
    }
    if (1..=1000).contains(&limit) { Ok(limit) } else { Err(problem(400, "usage", "no such limit")) }
}

/// A line as a server-sent event.
fn event(line: &Value) -> String {
    format!("id: {}\ndata: {line}\n\n", line["cursor"].as_str().unwrap_or_default())
}

impl State {
    pub(super) fn runs(&self, request: &ParsedRequest) -> Answer {
        self.wait(request)?;
        let limit = page(request, self)?;
        let consistency = request.get("consistency").unwrap_or("eventual");
        let lags = (self.is_wrong("latest_of_lists") && consistency == "latest")
            || (self.is_wrong("at_least_of_lists") && consistency.starts_with("at-least"));
        let model = self.before_last.as_ref().filter(|_| lags).unwrap_or(&self.model);
        let (prefix, status) = (request.get("prefix").unwrap_or_default(), request.get("status"));
        let status = status.filter(|_| !self.is_wrong("runs_by_status"));
        let after = request.get("cursor").and_then(canonical::unhex);
        let all = model.runs()["runs"].as_array().cloned().unwrap_or_default();
        let mut listed: Vec<Value> = all
            .iter()
            .filter(|run| run["run_id"].as_str().is_some_and(|id| id.starts_with(prefix)))
            .filter(|run| after.as_deref().is_none_or(|after| run["run_id"].as_str() > Some(after)))
            .filter(|run| status.is_none_or(|status| run["status"] == status))
            .map(|run| self.run(run))
            .collect();
        let next = listed.get(limit).map(|_| listed[limit - 1]["run_id"].as_str().unwrap_or_default().to_owned());
        listed.truncate(limit);
        if self.is_wrong("runs_in_order") {
            listed.reverse();
        }
        ok(
            &json!({"runs": listed, "unavailable_partitions": [], "next_cursor": next.map(|next| canonical::hex(next.as_bytes()))}),
        )
    }

    /// The lines of a run's timeline.
    fn lines(&self, view: &Model, run_id: &str, raw: bool) -> Vec<Value> {
        let mut lines = view.show(run_id)["records"].as_array().cloned().unwrap_or_default();
        for line in &mut lines {
            let position = &line["position"];
            let cursor = format!("line|{run_id}|{}:{}", position["offset"], position["index"]);
            line["cursor"] = canonical::hex(cursor.as_bytes()).into();
            line["record_kind"] = line["payload_type"].clone();
            line["timestamp"] = "2026-11-22T00:00:00.000Z".into();
            if self.is_wrong("batch_positions") {
                line["position"]["index"] = 0.into();
            }
            if self.is_wrong("records_in_order") {
                line["writer_seq"] = Value::Null;
            }
            let id = line["record_id"].as_str().unwrap_or_default().to_owned();
            let class = self.privacy.get(&(run_id.to_owned(), id)).map_or("internal", String::as_str);
            if raw || matches!(class, "public" | "internal") || self.is_wrong("masked") {
                continue;
            }
            for (name, value) in line["payload"].as_object_mut().into_iter().flatten() {
                if CONTENT.contains(&name.as_str()) {
                    *value = json!({"masked": class});
                }
            }
        }
        lines
    }

    /// The index of the first line after a cursor; 0 without a cursor.
    fn index_after(&self, lines: &[Value], run_id: &str, cursor: Option<&str>) -> Result<usize, Reply> {
        let Some(cursor) = cursor else { return Ok(0) };
        let text = canonical::unhex(cursor).unwrap_or_default();
        let own = text.starts_with(&format!("line|{run_id}|"));
        if !own && !self.is_wrong("cursors_refused") {
            return Err(problem(400, "usage", "a cursor of something else"));
        }
        Ok(lines.iter().position(|line| line["cursor"] == cursor).map_or(0, |at| at + 1))
    }

    pub(super) fn records(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "records")?;
        let limit = page(request, self)?;
        let mut lines = self.lines(&view, run_id, request.is("raw"));
        if lines.is_empty() {
            return Err(not_found("no run"));
        }
        if request.get("order") == Some("desc") && !self.is_wrong("records_newest_first") {
            lines.reverse();
        }
        let mut from = self.index_after(&lines, run_id, request.get("cursor"))?;
        if self.is_wrong("records_paged") && request.get("cursor").is_some() {
            from = from.saturating_sub(1);
        }
        if self.is_wrong("refusal_has_no_effect") {
            let refused = view.anomalies(Some(run_id))["anomalies"].clone();
            lines.extend(refused.as_array().into_iter().flatten().cloned());
        }
        let more = lines.len() > from + limit;
        let shown: Vec<Value> = lines.into_iter().skip(from).take(limit).collect();
        let next = shown.last().filter(|_| more).map(|line| line["cursor"].clone());
        ok(&json!({"records": shown, "next_cursor": next}))
    }

    pub(super) fn tail(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "tail")?;
        let mut lines = self.lines(&view, run_id, request.is("raw"));
        let from = match request.get("from").unwrap_or("beginning") {
            "beginning" => 0,
            "end" => lines.len(),
            cursor if self.is_wrong("tail_goes_on") => {
                self.index_after(&lines, run_id, Some(cursor))?.saturating_sub(1)
            }
            cursor => self.index_after(&lines, run_id, Some(cursor))?,
        };
        lines.drain(..from);
        if self.is_wrong("tail_in_order") && from == 0 {
            lines.reverse();
        }
        Ok(Reply { status: 200, content_type: "text/event-stream", body: lines.iter().map(event).collect() })
    }

    /// The events of a run's tail after the first `sent`, and whether the tail ends.
    pub(super) fn events_after(&self, run_id: &str, sent: usize) -> (Vec<String>, bool) {
        let lines = self.lines(&self.model, run_id, false);
        (lines.iter().skip(sent).map(event).collect(), self.is_wrong("tail_follows"))
    }

    pub(super) fn facts(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "facts")?;
        let head = view.recover(run_id);
        if head.is_null() && !(self.is_wrong("unknown_run") && request.get("as_of").is_none()) {
            return Err(not_found("no run"));
        }
        let at = request.get("at").map(|at| millis(at).ok_or_else(|| problem(400, "usage", "no time")));
        // Inclusive.
        let at = at.transpose()?.unwrap_or(i64::MAX) - i64::from(self.is_wrong("valid_time"));
        let mut answer = view.facts(run_id, at);
        let family = request.get("family").filter(|_| !self.is_wrong("facts_of_family"));
        if let (Some(family), Some(facts)) = (family, answer["facts"].as_array_mut()) {
            facts.retain(|fact| fact["family"] == family);
        }
        answer["run_id"] = run_id.into();
        answer["position"] = head["position"].clone();
        answer["next_cursor"] = Value::Null;
        ok(&answer)
    }

    pub(super) fn events(&self, request: &ParsedRequest) -> Answer {
        self.wait(request)?;
        let some = |name: &str| request.get(name).map(str::to_owned);
        let pair = |name: &str, between: char| {
            let (one, other) = request.get(name)?.split_once(between)?;
            Some((one.to_owned(), other.to_owned()))
        };
        let filter = EventFilter {
            run_id: some("run"),
            family: some("family"),
            kind: some("kind"),
            subject: pair("subject", ':'),
            related: pair("related", ':'),
            correlation: pair("correlation", '='),
            tag: some("tag"),
        };
        let mut answer = self.model.events(&filter);
        answer["unavailable_partitions"] = json!([]);
        answer["next_cursor"] = Value::Null;
        ok(&answer)
    }

    pub(super) fn anomalies(&self, request: &ParsedRequest) -> Answer {
        self.wait(request)?;
        let mut answer = self.model.anomalies(request.get("run"));
        if self.is_wrong("refusal_in_anomalies") {
            answer["anomalies"] = json!([]);
        }
        answer["unavailable_partitions"] = json!([]);
        answer["next_cursor"] = Value::Null;
        ok(&answer)
    }
}
