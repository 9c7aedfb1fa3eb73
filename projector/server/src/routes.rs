//! The table of operations, with the access and the handler of each.
//!
//! Each operation is listed here once: the router, the OpenAPI document and the access matrix in the tests derive from
//! it.

use super::{
    appends,
    auth::{Access, permissions::Scope},
    changes, checkpoints, contents, copies, events, facts, fleet, health, home, horizons, journal, open_items, openapi,
    overview,
    route::Route,
    run_list, runs, scrape, skips, tail, whoami,
};
use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use std::sync::LazyLock;

/// The scopes of operators and of auditors.
const WATCH: &[Scope] = &[Scope::Operate, Scope::Audit];

/// All operations, with the access that each needs.
pub(super) fn routes() -> Vec<Route> {
    use Access::{AllRuns, Known, NewRun, Open, Run};
    use Scope::{Append, Operate, ReadContent, ReadMeta, Resolve};
    vec![
        Route::get("/v1/journal", Known, journal::get),
        Route::get("/v1/whoami", Known, whoami::whoami),
        Route::get("/v1/overview", Run(ReadMeta), overview::overview),
        Route::get("/v1/runs", Run(ReadMeta), run_list::list),
        Route::get("/v1/runs/{run}", Run(ReadMeta), runs::get),
        Route::get("/v1/runs/{run}/records", Run(ReadMeta), runs::records),
        Route::post("/v1/runs/{run}/records", NewRun(Append), appends::append).at_home("an append"),
        Route::post("/v1/runs/{run}/claims", NewRun(Append), appends::claim).at_home("a claim"),
        Route::post("/v1/runs/{run}/contents", NewRun(Append), contents::upload).at_home("an upload").without_index(),
        Route::post("/v1/runs/{run}/copies", NewRun(Append), copies::append).at_home("a copy of a run"),
        Route::get("/v1/runs/{run}/lookup", Run(ReadContent), runs::lookup),
        Route::get("/v1/runs/{run}/calls/{id}", Run(ReadContent), runs::call),
        Route::get("/v1/runs/{run}/checkpoints", Run(ReadMeta), checkpoints::list),
        Route::get("/v1/runs/{run}/checkpoints/latest", Run(ReadContent), checkpoints::latest),
        Route::get("/v1/runs/{run}/checkpoints/{id}", Run(ReadContent), checkpoints::get),
        Route::get("/v1/runs/{run}/recovery", Run(ReadContent), runs::recovery),
        Route::get("/v1/runs/{run}/outcome", Run(ReadMeta), runs::outcome),
        Route::get("/v1/runs/{run}/tail", Run(ReadMeta), tail::stream_run),
        Route::get("/v1/runs/{run}/standing/{list}", Run(ReadMeta), open_items::list),
        Route::get("/v1/runs/{run}/facts", Run(ReadContent), facts::list),
        Route::post("/v1/runs/{run}/effects/{id}/resolution", Run(Resolve), runs::resolve).at_home("a decision"),
        Route::get("/v1/indices/{index}/changes", Run(ReadContent), changes::stream),
        Route::get("/v1/tail", Run(ReadMeta), tail::all::stream_all),
        Route::get("/v1/events", Run(ReadMeta), events::list),
        Route::get("/v1/effects", Run(ReadMeta), fleet::effects),
        Route::get("/v1/anomalies", Run(ReadMeta), fleet::anomalies),
        Route::get("/v1/dead-letters", AllRuns(WATCH), fleet::dead_letters),
        Route::get("/v1/dead-letters/{at}", AllRuns(&[Operate]), fleet::dead_letter),
        Route::post("/v1/skips", AllRuns(&[Operate]), skips::append).at_home("a skip"),
        Route::get("/v1/horizons", AllRuns(WATCH), horizons::list),
        Route::post("/v1/horizons", AllRuns(&[Operate]), horizons::append).at_home("a retention horizon"),
        Route::post("/v1/home", AllRuns(&[Operate]), home::init).at_home("a home"),
        Route::post("/v1/home/accepts", AllRuns(&[Operate]), home::accept).at_home("an acceptance of runs"),
        Route::post("/v1/verify", AllRuns(WATCH), fleet::verify),
        Route::get("/v1/doctor", AllRuns(WATCH), health::doctor),
        Route::get("/healthz", Open, || async { "ok\n" }),
        Route::get("/readyz", Known, health::ready),
        Route::get("/metrics", AllRuns(WATCH), scrape::scrape),
        Route::get("/openapi.json", Known, document),
    ]
}

/// All operations: methods in lower case, and paths with their parameters in braces, as in the OpenAPI document.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str)> {
    routes().into_iter().map(|route| (route.method, route.path))
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi::document(&routes()).to_string());

async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn every_call_that_appends_needs_the_home() {
        // A verification reads the log and appends nothing.
        let anywhere: Vec<_> = routes().into_iter().filter(|route| route.at_home.is_none()).collect();
        let posts: Vec<_> = anywhere.iter().filter(|route| route.method == "post").map(|route| route.path).collect();
        assert_eq!(posts, ["/v1/verify"]);
    }

    #[test]
    fn an_operation_describes_the_query_parameters_that_its_handler_accepts() {
        let document = openapi::document(&routes());
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for Route { method, path, query, .. } in routes() {
            let of_path = items(&document["paths"][path]["parameters"]);
            let parameters = of_path.into_iter().chain(items(&document["paths"][path][method]["parameters"]));
            let resolved = parameters.map(|parameter| match parameter["$ref"].as_str() {
                Some(target) => document.pointer(&target[1..]).unwrap().clone(),
                None => parameter,
            });
            let in_query = resolved.filter(|parameter| parameter["in"] == "query");
            let described: BTreeSet<_> =
                in_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
            assert_eq!(described, BTreeSet::from_iter(query()), "{method} {path}");
        }
    }
}
