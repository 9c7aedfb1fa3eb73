//! An operation: its method and path, the access that it needs, and its handler.

use super::{
    app::App,
    auth::{self, Access},
    extracts::Described,
    held, logs,
};
use axum::{
    extract::Request,
    handler::Handler,
    middleware,
    routing::{MethodRouter, get, post},
};
use runlog_projector::index::projector::Projector;
use schemars::{Schema, SchemaGenerator};
use std::sync::Arc;

/// One method of one path, which the router serves and the OpenAPI document describes.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The access that a caller needs.
    pub(super) access: Access,
    /// The name of the call, if only the journal's home can answer it.
    pub(super) at_home: Option<&'static str>,
    /// Whether a server answers a call about a run without the index of the run's partition.
    pub(super) needs_no_index: bool,
    pub(super) handler: MethodRouter<App>,
    /// The names of the query parameters that the handler accepts.
    pub(super) query: QueryNames,
    /// The schema of the handler's answer, if the answer has a type.
    pub(super) answer: AnswerSchema,
}

type QueryNames = fn() -> Vec<String>;
type AnswerSchema = fn(&mut SchemaGenerator) -> Option<Schema>;

impl Route {
    pub(super) fn get<T: 'static, H: Handler<T, App> + Described<T>>(
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        Self::new("get", path, access, get(handler), (H::query, H::answer))
    }

    pub(super) fn post<T: 'static, H: Handler<T, App> + Described<T>>(
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        Self::new("post", path, access, post(handler), (H::query, H::answer))
    }

    fn new(
        method: &'static str,
        path: &'static str,
        access: Access,
        handler: MethodRouter<App>,
        (query, answer): (QueryNames, AnswerSchema),
    ) -> Self {
        Self { method, path, access, at_home: None, needs_no_index: false, handler, query, answer }
    }

    /// Accepts the call also on a server that does not hold the partition of its run.
    pub(super) fn without_index(self) -> Self {
        Self { needs_no_index: true, ..self }
    }

    /// Refuses the call, which appends, on a mirror. `what` is its name in the error, such as "an append".
    pub(super) fn at_home(self, what: &'static str) -> Self {
        Self { at_home: Some(what), ..self }
    }

    /// Wraps the handler so that it runs only for callers with the access that it needs, on a server of the log and the partition that it
    /// needs. A caller without access learns nothing about the logs.
    pub(super) fn guard(self, projector: &Arc<Projector>) -> MethodRouter<App> {
        let (access, at_home) = (self.access, self.at_home);
        let (of_held, of_log) = (projector.clone(), projector.clone());
        let is_held = middleware::from_fn(move |request: Request, next: middleware::Next| {
            held::check(of_held.clone(), request, next)
        });
        let on_its_log = middleware::from_fn(move |request: Request, next: middleware::Next| {
            logs::check(of_log.clone(), at_home, request, next)
        });
        let permitted =
            middleware::from_fn(move |request: Request, next: middleware::Next| auth::permit(access, request, next));
        let handler = if self.needs_no_index { self.handler } else { self.handler.layer(is_held) };
        handler.layer(on_its_log).layer(permitted)
    }
}
