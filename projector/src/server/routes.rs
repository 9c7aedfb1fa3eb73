//! The table of operations, with the access and the handler of each.
//!
//! Each operation is listed here once: the router, the OpenAPI document and the access matrix in the tests derive from
//! it.

use super::{
    App, appends,
    auth::{self, Access, token_file::Scope},
    changes, checkpoints, contents, copies, events, facts, fleet, health, horizons, journal, metrics, open_items,
    openapi::{self, Extracts},
    overview, run_list, runs, skips, tail, whoami,
};
use axum::{
    extract::Request,
    handler::Handler,
    middleware,
    routing::{MethodRouter, get, post},
};

/// One method of one path, which the router serves and the OpenAPI document describes.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The access that a caller needs.
    pub(super) access: Access,
    pub(super) handler: MethodRouter<App>,
    /// The names of the query parameters that the handler takes.
    pub(super) query: fn() -> Vec<String>,
}

impl Route {
    fn get<T: Extracts + 'static>(path: &'static str, access: Access, handler: impl Handler<T, App>) -> Self {
        Self { method: "get", path, access, handler: get(handler), query: T::query }
    }

    fn post<T: Extracts + 'static>(path: &'static str, access: Access, handler: impl Handler<T, App>) -> Self {
        Self { method: "post", path, access, handler: post(handler), query: T::query }
    }

    /// Wraps the handler so that it runs only for callers with the access that it needs.
    pub(super) fn guard(self) -> MethodRouter<App> {
        let access = self.access;
        self.handler.layer(middleware::from_fn(move |request: Request, next: middleware::Next| {
            auth::permit(access, request, next)
        }))
    }
}

/// The scopes of operators and of auditors.
const WATCH: &[Scope] = &[Scope::Operate, Scope::Audit];

/// All operations, with the access that each needs.
pub(super) fn routes() -> Vec<Route> {
    use Access::{AllRuns, Known, NewRun, Open, Run};
    use Scope::{Append, Operate, ReadContent, ReadMeta, Resolve};
    vec![
        Route::get("/v1/journal", Known, journal),
        Route::get("/v1/whoami", Known, whoami::whoami),
        Route::get("/v1/overview", Run(ReadMeta), overview::overview),
        Route::get("/v1/runs", Run(ReadMeta), run_list::list),
        Route::get("/v1/runs/{run}", Run(ReadMeta), runs::get),
        Route::get("/v1/runs/{run}/records", Run(ReadMeta), runs::records),
        Route::post("/v1/runs/{run}/records", NewRun(Append), appends::append),
        Route::post("/v1/runs/{run}/claims", NewRun(Append), appends::claim),
        Route::post("/v1/runs/{run}/contents", NewRun(Append), contents::upload),
        Route::post("/v1/runs/{run}/copies", NewRun(Append), copies::append),
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
        Route::post("/v1/runs/{run}/effects/{id}/resolution", Run(Resolve), runs::resolve),
        Route::get("/v1/indices/{index}/changes", Run(ReadContent), changes::stream),
        Route::get("/v1/tail", Run(ReadMeta), tail::stream_all),
        Route::get("/v1/events", Run(ReadMeta), events::list),
        Route::get("/v1/effects", Run(ReadMeta), fleet::effects),
        Route::get("/v1/anomalies", Run(ReadMeta), fleet::anomalies),
        Route::get("/v1/dead-letters", AllRuns(WATCH), fleet::dead_letters),
        Route::get("/v1/dead-letters/{at}", AllRuns(&[Operate]), fleet::dead_letter),
        Route::post("/v1/skips", AllRuns(&[Operate]), skips::append),
        Route::get("/v1/horizons", AllRuns(WATCH), horizons::list),
        Route::post("/v1/horizons", AllRuns(&[Operate]), horizons::append),
        Route::post("/v1/verify", AllRuns(WATCH), fleet::verify),
        Route::get("/v1/doctor", AllRuns(WATCH), health::doctor),
        Route::get("/healthz", Open, || async { "ok\n" }),
        Route::get("/readyz", Known, health::ready),
        Route::get("/metrics", AllRuns(WATCH), metrics::scrape),
        Route::get("/openapi.json", Known, openapi::document),
    ]
}

/// All operations: methods in lower case, and paths with their parameters in braces, as in the OpenAPI document.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str)> {
    routes().into_iter().map(|route| (route.method, route.path))
}
