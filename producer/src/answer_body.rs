//! Reads the bodies of servers' answers. A server may be another program than the URL promises, and must not fill the memory.

use reqwest::Response;

/// The longest answer that is read, bytes. The longest answers of a server are a payload of 64 MiB with a page of 16 MiB, as JSON,
/// which can be some times as long.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The reason why a body was not read.
#[derive(Debug)]
pub enum BodyError {
    /// It broke off.
    BrokenOff(reqwest::Error),
    /// It is longer than any answer of a server. Contains the rest of the sentence "the answer of URL …".
    TooLong(String),
}

/// Reads a body, up to a bound that is above every answer of a server.
pub async fn read_body(response: Response) -> Result<Vec<u8>, BodyError> {
    read_body_up_to(response, ANSWER_BYTES_MAX).await
}

async fn read_body_up_to(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
    let too_long = || {
        let why = format!("has more than {bytes_max} bytes, which no runlog server sends; check the URL of the server");
        Err(BodyError::TooLong(why))
    };
    if response.content_length().is_some_and(|bytes| bytes > bytes_max as u64) {
        return too_long();
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::BrokenOff)? {
        if body.len() + chunk.len() > bytes_max {
            return too_long();
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::Security;
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    /// Answers one request with 100 bytes, under this header.
    #[expect(clippy::disallowed_methods, reason = "the server of a test")]
    async fn answer(header: &str) -> Response {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{header}\r\n");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let _ = stream.read(&mut [0; 4096])?;
            stream.write_all(&[head.as_bytes(), &[b'x'; 100]].concat())
        });
        let client = Security::default().client(&url).expect("a client").build().expect("a client");
        client.get(url).send().await.expect("an answer")
    }

    #[tokio::test]
    async fn a_body_over_the_bound_is_not_read() {
        for header in ["", "Content-Length: 100\r\n"] {
            let read = async |bytes_max| read_body_up_to(answer(header).await, bytes_max).await;
            assert_eq!(read(100).await.expect("within the bound").len(), 100, "{header}");
            let Err(BodyError::TooLong(why)) = read(99).await else { panic!("it was read: {header}") };
            assert!(why.contains("99 bytes") && why.contains("check the URL"), "{why}");
        }
    }
}
