//! Signatures. The signature of the example was computed by the scheme of Signature Version 4 with
//! another implementation (Python's `hmac`).

use crate::{Served, refused};
use siltstone_test_server::ServerConfig;

fn config() -> ServerConfig {
    ServerConfig {
        keys: vec![("quarry-id".to_owned(), "quarry-secret".to_owned())],
        // The clock of the example: 2023-11-14, as far from today as the machine says.
        clock_offset_millis: 1_700_000_000_000 - now(),
        ..ServerConfig::default()
    }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SIGNATURE: &str = "e4e9acce704d1845891c579b68d89698e4144f49c0261c477cb1ae33072347bf";

fn authorization(id: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={id}/20231114/us-east-1/s3/aws4_request, \
         SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}"
    )
}

/// The refusal of `GET /quarry/a%20b?x=1%2F2` with these headers.
fn answer(served: &mut Served, authorization: &str, date: &str) -> (u16, String) {
    let headers =
        [("authorization", authorization), ("x-amz-date", date), ("x-amz-content-sha256", EMPTY)];
    refused(&served.send("GET", "a%20b?x=1%2F2", &headers, b""))
}

#[test]
fn only_requests_of_known_keys_are_served() {
    let mut served = Served::new(config());
    let date = "20231114T221320Z";
    let right = authorization("quarry-id", SIGNATURE);
    let no = |code: &str| (403, code.to_owned());
    assert_eq!(answer(&mut served, &right, date), (404, "NoSuchKey".to_owned()));
    let other = authorization("other-id", SIGNATURE);
    assert_eq!(answer(&mut served, &other, date), no("InvalidAccessKeyId"));
    let wrong = authorization("quarry-id", EMPTY);
    assert_eq!(answer(&mut served, &wrong, date), no("SignatureDoesNotMatch"));
    assert_eq!(answer(&mut served, &right, "20231114T221321Z"), no("SignatureDoesNotMatch"));
    assert_eq!(answer(&mut served, &right, "20231114T225320Z"), no("RequestTimeTooSkewed"));
    assert_eq!(answer(&mut served, "Basic x", date), no("AccessDenied"));
    served.server.set_clock_offset(0);
    assert_eq!(answer(&mut served, &right, date), no("RequestTimeTooSkewed"));
}
