//! The interface as an OpenAPI document, handwritten in `openapi/`: paths, and what they share.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};

const DOCUMENT: &str = concat!(
    "{\"openapi\": \"3.1.0\",\n\"info\": ",
    include_str!("openapi/info.json"),
    ",\n\"paths\": ",
    include_str!("openapi/paths.json"),
    ",\n\"components\": {\n\"parameters\": ",
    include_str!("openapi/parameters.json"),
    ",\n\"responses\": ",
    include_str!("openapi/responses.json"),
    ",\n\"schemas\": ",
    include_str!("openapi/schemas.json"),
    "}}\n",
);

pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
