//! Encodes bytes in answers about records: hexadecimal, or base64 on request.

use runlog_projector::index::error::Error;
use runlog_schemas::{
    answer::{ErrorKind, Line, Lines},
    json::Json,
    payload::PayloadType,
    scalar::Bytes,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// The encoding of bytes in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ByteForm {
    /// A string of lower-case hexadecimal digits.
    #[default]
    Hex,
    /// An object with the member `base64`.
    Base64,
}

/// Members of payloads that are bytes.
const MEMBERS: [&str; 3] = ["bytes", "nonce", "ciphertext"];

impl ByteForm {
    /// Encodes the bytes of a page of records.
    pub(super) fn encode_page(self, page: Lines) -> Result<Lines, Error> {
        let records = page.records.into_iter().map(|line| self.encode_line(line)).collect::<Result<_, _>>()?;
        Ok(Lines { records, ..page })
    }

    fn encode_line(self, mut line: Line) -> Result<Line, Error> {
        let has_bytes = line
            .payload_type
            .known()
            .is_some_and(|known| matches!(known, PayloadType::HostPayload | PayloadType::Encrypted));
        if self == Self::Hex || !has_bytes {
            return Ok(line);
        }
        line.payload = rewrite(&line.payload, "")?;
        line.record = line.record.map(|record| rewrite(&record, "/payload")).transpose()?;
        Ok(line)
    }
}

/// Rewrites bytes as base64 in the members of the value that the pointer names.
fn rewrite(json: &Json, pointer: &str) -> Result<Json, Error> {
    let failed = |error| Error::new(ErrorKind::Internal, "a record's bytes are no bytes").because(error);
    let mut value = json.to_value();
    let payload = value.pointer_mut(pointer).and_then(Value::as_object_mut);
    for (_, bytes) in payload.into_iter().flatten().filter(|(name, _)| MEMBERS.contains(&name.as_str())) {
        // Masked bytes are not a string.
        if bytes.is_string() {
            *bytes = serde_json::from_value::<Bytes>(bytes.take()).map_err(failed)?.in_base64();
        }
    }
    Ok(Json::from(value))
}
