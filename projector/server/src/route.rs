//! An operation: its method and path, the access that it needs, and its handler.

use super::{
    app::App,
    auth::{self, Access},
    extracts::Described,
    logs,
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
    pub(super) handler: MethodRouter<App>,
    /// The names of the query parameters that the handler accepts.
    pub(super) query: fn() -> Vec<String>,
    /// The schema of the handler's answer, if the answer has a type.
    pub(super) answer: fn(&mut SchemaGenerator) -> Option<Schema>,
}

impl Route {
    pub(super) fn get<T: 'static, H: Handler<T, App> + Described<T>>(
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        Self { method: "get", path, access, at_home: None, handler: get(handler), query: H::query, answer: H::answer }
    }

    pub(super) fn post<T: 'static, H: Handler<T, App> + Described<T>>(
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        Self { method: "post", path, access, at_home: None, handler: post(handler), query: H::query, answer: H::answer }
    }

    /// Refuses the call, which appends, on a mirror. `what` is its name in the error, such as "an append".
    pub(super) fn at_home(self, what: &'static str) -> Self {
        Self { at_home: Some(what), ..self }
    }

    /// Wraps the handler so that it runs only for callers with the access that it needs, on a server of the log that it
    /// needs. A caller without access learns nothing about the logs.
    pub(super) fn guard(self, projector: &Arc<Projector>) -> MethodRouter<App> {
        let (access, at_home, projector) = (self.access, self.at_home, projector.clone());
        let on_its_log = middleware::from_fn(move |request: Request, next: middleware::Next| {
            logs::check(projector.clone(), at_home, request, next)
        });
        let permitted =
            middleware::from_fn(move |request: Request, next: middleware::Next| auth::permit(access, request, next));
        self.handler.layer(on_its_log).layer(permitted)
    }
}
