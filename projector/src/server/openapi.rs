//! The interface as an OpenAPI document: paths and answers from `openapi/`, payloads from the Avro schema.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use std::sync::LazyLock;

mod payloads;

const WRITTEN: &str = concat!(
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

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut document: Value = serde_json::from_str(WRITTEN).expect("the compiled-in document is JSON");
    payloads::describe(&mut document["components"]["schemas"]);
    document.to_string()
});

pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}
