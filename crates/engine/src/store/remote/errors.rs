//! What a remote store's errors mean to a caller. Their texts are cleaned of secrets first.

use super::super::PutAnswer;
use super::super::options::Redactor;
use super::Provider;
use siltstone_base::{Error, ErrorKind, Result};
use std::fmt;

/// A cleaned text of the client, as a cause.
#[derive(Debug)]
struct Cause(String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

/// Turns a client's errors into ours.
#[derive(Debug)]
pub(super) struct Explainer {
    provider: Provider,
    bucket: String,
    redactor: Redactor,
}

/// The HTTP status that a text of the client names. The client does not give it otherwise; where
/// its wording changes, errors become less exact and stay safe.
pub(super) fn status_in(text: &str) -> Option<u16> {
    let after = text.split("status code: ").nth(1)?;
    after.get(..3)?.parse().ok()
}

/// Signs that the credentials themselves could not be had. The texts name where they were sought.
const NO_CREDENTIALS: [&str; 5] = [
    "/latest/api/token",
    "/latest/meta-data",
    "metadata.google.internal",
    "/metadata/identity/oauth2/token",
    "169.254.",
];
/// Codes of S3 for credentials that were right once; they come with status 400.
const STALE_CREDENTIALS: [&str; 3] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"];
/// How S3 says that one delete of many is not permitted: the whole has status 200.
const DENIED_BY_NAME: &str = "AccessDenied";
/// How S3, GCS and Azure say that the bucket is missing, rather than an object in it.
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "bucket does not exist", "ContainerNotFound"];

impl Explainer {
    pub(super) fn new(provider: Provider, bucket: &str, redactor: Redactor) -> Self {
        Explainer { provider, bucket: bucket.to_owned(), redactor }
    }

    /// The bucket as a URL.
    pub(super) fn place(&self) -> String {
        format!("{}://{}", self.provider.scheme(), self.bucket)
    }

    /// The error's text and those of its causes, without repetition and without secrets.
    fn text_of(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let below = error.to_string();
            if !text.contains(&below) {
                text.push_str(": ");
                text.push_str(&below);
            }
            cause = error.source();
        }
        self.redactor.clean(&text)
    }

    fn error(&self, kind: ErrorKind, message: &str, text: String) -> Error {
        Error::new(kind, message).with("bucket", self.place()).caused_by(Cause(text))
    }

    /// An object was not found: fine, unless its whole bucket is missing.
    pub(super) fn absent(&self, error: &(dyn std::error::Error + 'static)) -> Result<()> {
        let text = self.text_of(error);
        if NO_BUCKET.iter().any(|sign| text.contains(sign)) {
            return Err(self.error(ErrorKind::NotFound, "the bucket does not exist", text));
        }
        Ok(())
    }

    /// Any failure but those that callers look at themselves.
    pub(super) fn explain(&self, error: &object_store::Error) -> Error {
        use object_store::Error as Client;
        let text = self.text_of(error);
        let (kind, message) = match error {
            Client::NotFound { .. } => (ErrorKind::NotFound, "the bucket does not exist"),
            Client::PermissionDenied { .. } | Client::Unauthenticated { .. } => {
                (ErrorKind::Denied, "the store refused the credentials or the permission")
            }
            Client::InvalidPath { .. } => (ErrorKind::Invalid, "the store cannot have this path"),
            Client::NotSupported { .. } | Client::NotImplemented { .. } => {
                (ErrorKind::Unsupported, "the store cannot do this")
            }
            Client::UnknownConfigurationKey { .. } => {
                (ErrorKind::Invalid, "the store does not know an option")
            }
            _ => by_text(&text),
        };
        self.error(kind, message, text)
    }

    /// What the failure of a create means. Certain are only refusals: everything else may have been
    /// applied, by this request or by a repetition of it on the way.
    pub(super) fn explain_create(&self, error: &object_store::Error) -> PutAnswer {
        use object_store::Error as Client;
        if matches!(
            error,
            Client::AlreadyExists { .. } | Client::Precondition { .. } | Client::NotModified { .. }
        ) {
            return PutAnswer::Exists;
        }
        let explained = self.explain(error);
        let certain = match explained.kind() {
            // A server answers 4xx before it applies anything, but for a time-out (408) and a
            // "slow down" (429) of a proxy, which may have passed the request on.
            ErrorKind::Unavailable => {
                let status = status_in(&error.to_string());
                status.is_some_and(|s| (400..500).contains(&s) && s != 408 && s != 429)
            }
            // A refusal, in so many words.
            _ => true,
        };
        if certain { PutAnswer::Refused(explained) } else { PutAnswer::Ambiguous(explained) }
    }
}

fn by_text(text: &str) -> (ErrorKind, &'static str) {
    if NO_CREDENTIALS.iter().any(|sign| text.contains(sign)) {
        let message = "no credentials were found, neither in the store options nor in the \
                       environment nor on this machine";
        return (ErrorKind::Denied, message);
    }
    if STALE_CREDENTIALS.iter().any(|sign| text.contains(sign)) {
        return (ErrorKind::Denied, "the credentials have expired");
    }
    if text.contains(DENIED_BY_NAME) {
        return (ErrorKind::Denied, "the store refused the credentials or the permission");
    }
    if text.contains("redirect without LOCATION") {
        return (ErrorKind::Invalid, "the store is elsewhere: check `region` and `endpoint`");
    }
    match status_in(text) {
        Some(401 | 403) => {
            (ErrorKind::Denied, "the store refused the credentials or the permission")
        }
        Some(404) => (ErrorKind::NotFound, "the bucket does not exist"),
        Some(300..=399) => {
            (ErrorKind::Invalid, "the store is elsewhere: check `region` and `endpoint`")
        }
        Some(405 | 501) => {
            (ErrorKind::Unsupported, "the store cannot do this; Siltstone needs conditional writes")
        }
        Some(411 | 413 | 414) => (ErrorKind::Invalid, "the store refused the request's size"),
        _ => (ErrorKind::Unavailable, "the store does not answer as it should"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::Error as Client;

    fn explainer() -> Explainer {
        let mut redactor = Redactor::default();
        redactor.learn("secret_access_key", "canary");
        Explainer::new(Provider::S3, "quarry", redactor)
    }

    fn generic(text: &str) -> Client {
        Client::Generic { store: "S3", source: text.to_owned().into() }
    }

    fn status(code: u16) -> Client {
        generic(&format!("Server returned non-2xx status code: {code} Something: body"))
    }

    #[test]
    fn kinds_say_what_to_do() {
        let source = || "because".to_owned().into();
        let path = || "p".to_owned();
        let cases = [
            (Client::PermissionDenied { path: path(), source: source() }, ErrorKind::Denied),
            (Client::Unauthenticated { path: path(), source: source() }, ErrorKind::Denied),
            (Client::NotFound { path: path(), source: source() }, ErrorKind::NotFound),
            (Client::NotSupported { source: source() }, ErrorKind::Unsupported),
            (status(500), ErrorKind::Unavailable),
            (status(503), ErrorKind::Unavailable),
            (status(400), ErrorKind::Unavailable),
            (status(501), ErrorKind::Unsupported),
            (status(413), ErrorKind::Invalid),
            (status(301), ErrorKind::Invalid),
            (generic("400: <Code>ExpiredToken</Code>"), ErrorKind::Denied),
            (generic("PUT http://169.254.169.254/latest/api/token"), ErrorKind::Denied),
            (generic("connection reset"), ErrorKind::Unavailable),
        ];
        for (error, kind) in cases {
            assert_eq!(explainer().explain(&error).kind(), kind, "{error}");
        }
    }

    #[test]
    fn only_refusals_of_a_create_are_certain() {
        let answer = |error: &Client| match explainer().explain_create(error) {
            PutAnswer::Created => "created",
            PutAnswer::Exists => "exists",
            PutAnswer::Refused(_) => "refused",
            PutAnswer::Ambiguous(_) => "ambiguous",
        };
        let source = || "because".to_owned().into();
        let path = || "p".to_owned();
        assert_eq!(answer(&Client::AlreadyExists { path: path(), source: source() }), "exists");
        assert_eq!(answer(&Client::Precondition { path: path(), source: source() }), "exists");
        assert_eq!(answer(&Client::NotFound { path: path(), source: source() }), "refused");
        assert_eq!(answer(&Client::PermissionDenied { path: path(), source: source() }), "refused");
        for code in [400, 403, 405, 413, 501] {
            assert_eq!(answer(&status(code)), "refused", "{code}");
        }
        for code in [408, 429, 500, 502, 503, 504] {
            assert_eq!(answer(&status(code)), "ambiguous", "{code}");
        }
        assert_eq!(answer(&generic("timed out")), "ambiguous");
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let text = |text: &str| -> Box<dyn std::error::Error> { text.to_owned().into() };
        assert!(explainer().absent(&*text("<Code>NoSuchKey</Code>")).is_ok());
        for sign in NO_BUCKET {
            let error = explainer().absent(&*text(sign)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("s3://quarry"), "{error}");
        }
    }

    #[test]
    fn secrets_leave_every_text() {
        let error = generic("PUT https://h/p?X-Amz-Signature=feed said canary");
        let explained = explainer().explain(&error);
        for text in [format!("{explained}"), format!("{explained:?}")] {
            assert!(!text.contains("canary") && !text.contains("feed"), "{text}");
        }
    }
}
