//! Mounts the routes, and the checks that each request passes.

use super::{
    access,
    app::App,
    auth, fallbacks,
    folders::{self, Folders},
    instances::{Forward, forward},
    options::Options,
    page, requests,
    route::Route,
    routes::routes,
    shutdown::{self, Shutdown},
    url_text,
};
use axum::{Router, middleware};
use runlog_projector::index::projector::Projector;
use std::{sync::Arc, time::Duration};

/// Makes the routes over `projector` as a tower service without a socket, for tests and simulations. The service never
/// shuts down. Dropping the future of an answer has the same effect as a client that disconnects.
pub fn router(projector: Arc<Projector>) -> Router {
    router_with(projector, Options::default())
}

/// Makes the routes like [`router`], with options. Files that the options name are not read again.
pub fn router_with(projector: Arc<Projector>, options: Options) -> Router {
    all(App::new(projector, options, Shutdown::new(Duration::ZERO).1))
}

/// Mounts all routes, with the checks that the options ask for.
pub(super) fn all(app: App) -> Router {
    let add = |router: Router<App>, route: Route| router.route(route.path, route.guard(&app.projector));
    let router = routes().into_iter().fold(Router::new(), add);
    let router = match &app.options.instances {
        Some(list) => {
            router.layer(middleware::from_fn_with_state(Forward::new(list, &app.projector, &app.metrics), forward))
        }
        None => router,
    };
    let page = if app.options.page { page::routes(app.options.hosts.clone()) } else { Router::new() };
    router
        .fallback(fallbacks::refuse_path)
        .method_not_allowed_fallback(fallbacks::refuse_method)
        .layer(middleware::map_response(fallbacks::reshape))
        .layer(middleware::from_fn(url_text::check))
        .layer(middleware::from_fn_with_state(app.limits.clone(), requests::admit))
        .layer(middleware::from_fn_with_state(app.shutdown.clone(), shutdown::answer_in_time))
        .layer(middleware::from_fn_with_state(app.options.authentication.clone(), auth::authenticate))
        .layer(middleware::from_fn_with_state(app.options.hosts.clone(), access::guard))
        .layer(middleware::from_fn_with_state(Folders::new(&app.projector), folders::hide))
        .layer(middleware::map_response(requests::forbid_storing))
        // The files of the page have no data: they need no token, and browsers may keep them.
        .merge(page)
        .layer(middleware::from_fn_with_state(app.metrics.clone(), requests::observe))
        .with_state(app)
}

/// Mounts health, readiness and metrics for anyone. Their answers name no run.
pub(super) fn probes(app: App) -> Router {
    let probes = routes().into_iter().filter(|route| requests::PROBES.contains(&route.path));
    let add = |router: Router<App>, route: Route| router.route(route.path, route.handler);
    probes
        .fold(Router::new(), add)
        .fallback(fallbacks::refuse_admin_path)
        .method_not_allowed_fallback(fallbacks::refuse_method)
        .layer(middleware::map_response(fallbacks::reshape))
        .layer(middleware::from_fn_with_state(app.shutdown.clone(), shutdown::answer_in_time))
        .layer(middleware::from_fn_with_state(app.options.hosts.clone(), access::guard))
        .layer(middleware::map_response(requests::forbid_storing))
        .layer(middleware::from_fn_with_state(app.metrics.clone(), requests::observe))
        .with_state(app)
}
