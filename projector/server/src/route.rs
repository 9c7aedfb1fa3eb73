//! An operation: its method and path, the access that it needs, and its handler.

use super::{
    app::App,
    auth::{self, Access},
    extracts::Described,
};
use axum::{
    extract::Request,
    handler::Handler,
    middleware,
    routing::{MethodRouter, get, post},
};
use schemars::{Schema, SchemaGenerator};

/// One method of one path, which the router serves and the OpenAPI document describes.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The access that a caller needs.
    pub(super) access: Access,
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
        Self { method: "get", path, access, handler: get(handler), query: H::query, answer: H::answer }
    }

    pub(super) fn post<T: 'static, H: Handler<T, App> + Described<T>>(
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        Self { method: "post", path, access, handler: post(handler), query: H::query, answer: H::answer }
    }

    /// Wraps the handler so that it runs only for callers with the access that it needs.
    pub(super) fn guard(self) -> MethodRouter<App> {
        let access = self.access;
        self.handler.layer(middleware::from_fn(move |request: Request, next: middleware::Next| {
            auth::permit(access, request, next)
        }))
    }
}
