//! Signature Version 4 in the header `Authorization`: requests of wrong keys are refused.

use crate::call::Call;
use crate::listing::KEPT_IN_KEY;
use crate::operations::Answer;
use crate::time;
use aws_lc_rs::{digest, hmac};
use percent_encoding::utf8_percent_encode;

/// The largest difference between the clocks of client and server, as for S3.
const SKEW_MILLIS: u64 = 15 * 60 * 1000;

/// Refuses a request that is not signed by one of the keys (id and secret).
///
/// # Errors
/// The answer of S3, with status 403 or 400.
pub(crate) fn check(call: &Call, keys: &[(String, String)], now: u64) -> Result<(), Answer> {
    let denied = |code: &str, text: &str| Answer::error(403, code, text);
    let signed = call.header("authorization").and_then(Signed::read);
    let Some(signed) = signed else { return Err(denied("AccessDenied", "Access Denied")) };
    let Some((_, secret)) = keys.iter().find(|(id, _)| *id == signed.id) else {
        let text = "The AWS Access Key Id you provided does not exist in our records.";
        return Err(denied("InvalidAccessKeyId", text));
    };
    let date = call.header("x-amz-date").unwrap_or_default();
    let is_near = time::parse_amz(date).is_some_and(|sent| sent.abs_diff(now) <= SKEW_MILLIS);
    if !is_near {
        let text = "The difference between the request time and the current time is too large.";
        return Err(denied("RequestTimeTooSkewed", text));
    }
    if signed.signature(call, secret, date) != signed.signature {
        let text = "The request signature we calculated does not match the signature you provided.";
        return Err(denied("SignatureDoesNotMatch", text));
    }
    let announced = call.header("x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
    let is_plain = announced.len() == 64;
    if is_plain && announced != sha256(&call.body) {
        let text = "The provided 'x-amz-content-sha256' header does not match what was computed.";
        return Err(Answer::error(400, "XAmzContentSHA256Mismatch", text));
    }
    Ok(())
}

/// The parts of the header.
struct Signed {
    id: String,
    /// Day, region, service and `aws4_request`.
    scope: Vec<String>,
    headers: Vec<String>,
    signature: String,
}

impl Signed {
    fn read(header: &str) -> Option<Signed> {
        let fields = header.strip_prefix("AWS4-HMAC-SHA256")?;
        let field = |name: &str| {
            let mut each = fields.split(',').map(str::trim);
            each.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let mut credential = field("Credential")?.split('/').map(str::to_owned);
        let id = credential.next()?;
        let scope: Vec<String> = credential.collect();
        let headers = field("SignedHeaders")?.split(';').map(str::to_owned).collect();
        let signature = field("Signature")?.to_owned();
        (scope.len() == 4).then_some(Signed { id, scope, headers, signature })
    }

    fn signature(&self, call: &Call, secret: &str, date: &str) -> String {
        let request = sha256(self.canonical(call).as_bytes());
        let scope = self.scope.join("/");
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{request}");
        let first = format!("AWS4{secret}").into_bytes();
        let key = self.scope.iter().fold(first, |key, part| sign(&key, part));
        hex(&sign(&key, &text))
    }

    /// Method, path, query, signed headers and the hash of the body, each on its line.
    fn canonical(&self, call: &Call) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, KEPT_IN_KEY).to_string();
        let whole = |text: &str| encoded(text).replace('/', "%2F");
        let mut query: Vec<String> = call
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", whole(name), whole(value)))
            .collect();
        query.sort_unstable();
        let headers = self.headers.iter().map(|name| {
            let values = call.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let words = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{name}:{}\n", values.map(words).collect::<Vec<_>>().join(","))
        });
        let headers: String = headers.collect();
        let body = call.header("x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
        format!(
            "{}\n{}\n{}\n{headers}\n{}\n{body}",
            call.method,
            encoded(&call.path),
            query.join("&"),
            self.headers.join(";")
        )
    }
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
