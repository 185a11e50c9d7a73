//! Translates errors of a remote store into ours. Secrets are removed from their texts first.

use super::clients::RemoteClients;
use super::pace::StorePace;
use crate::PutAnswer;
use crate::place::Provider;
use siltstone_base::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;

/// A text of the client without secrets, as a cause.
#[derive(Debug)]
struct CleanedText(String);

impl fmt::Display for CleanedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CleanedText {}

impl CleanedText {
    /// In one line, so that a line of a log has the whole error. An answer in XML is replaced by
    /// its code and message.
    fn one_line(text: &str) -> CleanedText {
        let answer = text.find("<?xml").or_else(|| text.find("<Error"));
        let shown = match (answer, element(text, "Code")) {
            (Some(start), Some(code)) => {
                let before = text.get(..start).unwrap_or_default();
                let message = element(text, "Message").unwrap_or_default();
                format!("{before} {code} {message}")
            }
            _ => text.to_owned(),
        };
        CleanedText(shown.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The text of the first element with this name.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, after) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = after.split_once(&format!("</{name}>"))?;
    Some(inside.trim())
}

/// Translates errors of a client.
#[derive(Clone)]
pub(super) struct Explainer {
    provider: Provider,
    bucket: String,
    clients: Arc<RemoteClients>,
    /// The state of connections.
    pace: Option<Arc<StorePace>>,
}

/// The HTTP status in a text of the client, which does not provide it otherwise. If the wording of
/// the client changes, errors become less precise and stay safe.
pub(super) fn status_in(text: &str) -> Option<u16> {
    let after = text.split("status code: ").nth(1)?;
    after.get(..3)?.parse().ok()
}

/// The error code of S3, GCS and Azure in a text, if there is one. Only the code element is read,
/// because names in the same answer may look like codes.
pub(super) fn code_in(text: &str) -> Option<&str> {
    element(text, "Code")
}

/// Texts of the client for an answer to a range that has no part: the range begins at the length
/// that the answer gives (Azurite), the part ends before it begins (of an empty object), or the
/// whole object came, which an empty one is.
const NO_PART: [&str; 3] = [
    "Wanted range starting at",
    "Failed to parse value for CONTENT_RANGE",
    "Received non-partial response when range requested",
];

/// Whether a failed read of a range may be one that begins at or past the end of its object.
pub(super) fn may_be_past_the_end(text: &str) -> bool {
    status_in(text) == Some(416)
        || code_in(text) == Some("InvalidRange")
        || NO_PART.iter().any(|sign| text.contains(sign))
}

/// Texts that show that no credentials were found. They name the places that were searched.
const NO_CREDENTIALS: [&str; 5] = [
    "/latest/api/token",
    "/latest/meta-data",
    "metadata.google.internal",
    "/metadata/identity/oauth2/token",
    "169.254.",
];
/// Codes of S3 for expired credentials. They come with status 400.
const STALE_CREDENTIALS: [&str; 3] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"];
/// Code of S3 for one denied delete among many. The whole answer has status 200.
const DENIED_BY_NAME: &str = "AccessDenied";
/// Texts of S3, GCS and Azure for a missing bucket, as opposed to a missing object.
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "bucket does not exist", "ContainerNotFound"];
/// Code of S3 for a multipart upload that does not exist, or no longer.
const NO_UPLOAD: &str = "NoSuchUpload";
/// Text of a client that refuses to use an unencrypted connection.
const NOT_ENCRYPTED: &str = "URL scheme is not allowed";

impl Explainer {
    pub(super) fn new(provider: Provider, bucket: &str, clients: &Arc<RemoteClients>) -> Self {
        let clients = Arc::clone(clients);
        Explainer { provider, bucket: bucket.to_owned(), clients, pace: None }
    }

    /// An explainer that reports when no connection can be made.
    pub(super) fn with_pace(self, pace: &Arc<StorePace>) -> Self {
        Explainer { pace: Some(Arc::clone(pace)), ..self }
    }

    /// The name of the bucket.
    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The bucket as a URL.
    pub(super) fn place(&self) -> String {
        format!("{}://{}", self.provider.scheme(), self.bucket)
    }

    /// The text of the error and its causes, without repetition and without secrets.
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
        self.clients.clean(&text)
    }

    fn error(&self, kind: ErrorKind, message: &str, text: String) -> Error {
        Error::new(kind, message)
            .with("bucket", self.place())
            .caused_by(CleanedText::one_line(&text))
    }

    /// A missing object is fine, unless its bucket is missing.
    pub(super) fn absent(&self, error: &(dyn std::error::Error + 'static)) -> Result<()> {
        let text = self.text_of(error);
        if is_bucket_missing(&text) {
            return Err(self.error(ErrorKind::NotFound, "the bucket does not exist", text));
        }
        Ok(())
    }

    /// The error of a copy whose source, or bucket, does not exist.
    pub(super) fn no_source(&self, error: &(dyn std::error::Error + 'static)) -> Error {
        self.absent(error).err().unwrap_or_else(|| {
            let message = "the source of a copy does not exist";
            self.error(ErrorKind::NotFound, message, self.text_of(error))
        })
    }

    /// Translates any failure that the caller does not handle itself.
    pub(super) fn explain(&self, error: &object_store::Error) -> Error {
        use object_store::Error as Client;
        let text = self.text_of(error);
        if self.pace.as_ref().is_some_and(|pace| pace.unreachable().is_some()) {
            // The store never answered, so retries until the deadline would tell nothing more.
            let message = "no connection can be made to the store: check the store option \
                           `endpoint`, the network, and the certificates";
            return self.error(ErrorKind::Unavailable, message, text).not_repeated();
        }
        let (kind, message) = match error {
            Client::PermissionDenied { .. } | Client::Unauthenticated { .. } => {
                denied(code_in(&text))
            }
            Client::InvalidPath { .. } => (ErrorKind::Invalid, "the store cannot have this path"),
            Client::NotSupported { .. } | Client::NotImplemented { .. } => {
                (ErrorKind::Unsupported, "the store cannot do this")
            }
            Client::UnknownConfigurationKey { .. } => {
                (ErrorKind::Invalid, "the store does not know an option")
            }
            Client::NotFound { .. } => missing(&text),
            _ => by_text(&text),
        };
        if kind == ErrorKind::Denied && self.clients.refused() {
            let message = "the store refused the credentials; they are renewed";
            return self.error(ErrorKind::Unavailable, message, text);
        }
        let right = Some(message).filter(|message| *message == REFUSED.1);
        let right = right.and_then(|_| missing_right(self.provider, &text));
        let error = self.error(kind, message, text);
        right.map_or(error.clone(), |right| error.with("it may lack", right))
    }

    /// Translates the failure of a create. Only refusals are certain: after any other failure the
    /// create may have been applied, by this request or by a repetition on the way.
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
            // No connection was ever made.
            _ if explained.kind().is_transient() && !explained.may_be_repeated() => true,
            // A server answers 4xx before it applies anything, except for a timeout (408, or a 400
            // that says so) and a "slow down" (429) of a proxy, which may have passed the request
            // on.
            ErrorKind::Unavailable => {
                let text = error.to_string();
                let late = code_in(&text).is_some_and(|code| code == "RequestTimeout");
                let status = status_in(&text).filter(|_| !late);
                status.is_some_and(|s| (400..500).contains(&s) && s != 408 && s != 429)
            }
            // All other kinds are explicit refusals.
            _ => true,
        };
        if certain { PutAnswer::Refused(explained) } else { PutAnswer::Ambiguous(explained) }
    }
}

/// The right that a refused request needs, by the names of the provider. Credentials that are wrong
/// as a whole lack all of them.
fn missing_right(provider: Provider, text: &str) -> Option<&'static str> {
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    let rights = match provider {
        Provider::S3 => [
            "s3:ListBucket",
            "s3:DeleteObject",
            "s3:PutObject",
            "s3:GetObject, or s3:ListBucket if the object does not exist",
        ],
        Provider::Gcs => [
            "storage.objects.list",
            "storage.objects.delete",
            "storage.objects.create",
            "storage.objects.get",
        ],
        Provider::Azure => [
            "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
            "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete",
            "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
            "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
        ],
    };
    let [list, delete, write, read] = rights;
    if has(&["list request", "performing LIST"]) {
        Some(list)
    } else if has(&["DeleteObjects", "delete request", "performing DELETE", "bulk delete"]) {
        Some(delete)
    } else if has(&["performing PUT", "performing POST", "put request", "create multipart"]) {
        Some(write)
    } else if has(&["performing GET", "performing HEAD", "get request"]) {
        Some(read)
    } else {
        None
    }
}

fn is_bucket_missing(text: &str) -> bool {
    match code_in(text) {
        Some(code) => NO_BUCKET.contains(&code),
        None => NO_BUCKET.iter().any(|sign| text.contains(sign)),
    }
}

/// The kind and the message of a refusal. The text of the store becomes its cause.
type Meaning = (ErrorKind, &'static str);

const REFUSED: Meaning = (ErrorKind::Denied, "the store refused the credentials or the permission");
const ELSEWHERE: Meaning =
    (ErrorKind::Invalid, "the bucket is elsewhere: check `region` and `endpoint`");

fn denied(code: Option<&str>) -> Meaning {
    match code {
        Some("RequestTimeTooSkewed" | "RequestExpired" | "RequestInTheFuture") => {
            let message = "the clock of this machine differs too much from the store's: correct it";
            (ErrorKind::Denied, message)
        }
        _ => REFUSED,
    }
}

/// A 404 for something other than an object.
fn missing(text: &str) -> Meaning {
    if text.contains(NO_UPLOAD) && !is_bucket_missing(text) {
        // A new upload may succeed.
        return (ErrorKind::Unavailable, "the store no longer has the parts of an upload");
    }
    (ErrorKind::NotFound, "the bucket does not exist")
}

pub(super) fn by_text(text: &str) -> Meaning {
    if NO_CREDENTIALS.iter().any(|sign| text.contains(sign)) {
        let message = "no credentials were found, neither in the store options nor in the \
                       environment nor on this machine";
        return (ErrorKind::Denied, message);
    }
    if STALE_CREDENTIALS.iter().any(|sign| text.contains(sign)) {
        return (ErrorKind::Denied, "the credentials have expired");
    }
    if text.contains(DENIED_BY_NAME) {
        return REFUSED;
    }
    if text.contains("redirect without LOCATION") {
        return ELSEWHERE;
    }
    if text.contains(NOT_ENCRYPTED) {
        let message = "the store was reached over http://, without encryption: the store option \
                       `allow_http=true` allows it";
        return (ErrorKind::Invalid, message);
    }
    match status_in(text) {
        Some(401 | 403) => denied(code_in(text)),
        Some(404) => missing(text),
        Some(300..=399) => ELSEWHERE,
        Some(405 | 501) => {
            (ErrorKind::Unsupported, "the store cannot do this; Siltstone needs conditional writes")
        }
        Some(411 | 413 | 414 | 431) => TOO_LARGE,
        // Temporary conflicts, timeouts, and requests to slow down.
        Some(408 | 409 | 425 | 429) => NOT_NOW,
        // A read past the end of an object, which [`super::RemoteShared`] proves by the object's
        // length.
        Some(416) => code_in(text).map_or(NOT_NOW, by_code),
        // The request is wrong, and would be refused again.
        Some(400..=499) => code_in(text).map_or(TO_BLAME, by_code),
        _ => NOT_NOW,
    }
}

const NOT_NOW: Meaning = (ErrorKind::Unavailable, "the store does not answer as it should");
const TO_BLAME: Meaning = (ErrorKind::Invalid, "the store refused the request");
const TOO_LARGE: Meaning = (ErrorKind::Invalid, "the store refused the request's size");

/// Translates a refusal by its code, for a status that blames the request. A repetition would be
/// refused again, except for the codes listed here.
fn by_code(code: &str) -> Meaning {
    match code {
        // Bytes arrived late or damaged, or the store has a temporary reason.
        "RequestTimeout"
        | "IncompleteBody"
        | "BadDigest"
        | "XAmzContentSHA256Mismatch"
        | "InternalError"
        | "OperationAborted"
        | "SlowDown"
        | "ServerBusy"
        | "InvalidRange" => NOT_NOW,
        "EntityTooLarge"
        | "RequestBodyTooLarge"
        | "MaxMessageLengthExceeded"
        | "KeyTooLongError"
        | "RequestHeaderSectionTooLarge" => TOO_LARGE,
        "InvalidBucketName" | "InvalidResourceName" => {
            (ErrorKind::Invalid, "the store cannot have a bucket of this name: check the URL")
        }
        "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException"
        | "PermanentRedirect" => ELSEWHERE,
        "InvalidAccessKeyId"
        | "AuthenticationFailed"
        | "InvalidAuthenticationInfo"
        | "InvalidSecurity"
        | "MissingSecurityHeader"
        | "RequestTimeTooSkewed"
        | "RequestExpired"
        | "RequestInTheFuture" => denied(Some(code)),
        // Encryption keys that are disabled, deleted or unknown.
        _ if code.starts_with("KMS.") => {
            (ErrorKind::Denied, "the store cannot use the bucket's encryption key")
        }
        // Space may become free.
        _ if code.contains("QuotaExceeded") || code.contains("StorageFull") => {
            (ErrorKind::Unavailable, "the store has no room for more")
        }
        "NotImplemented" | "MethodNotAllowed" => {
            (ErrorKind::Unsupported, "the store cannot do this; Siltstone needs conditional writes")
        }
        _ => TO_BLAME,
    }
}

#[cfg(test)]
mod tests {
    use super::super::clients::testing::clients;
    use super::*;
    use object_store::Error as Client;

    fn explainer() -> Explainer {
        let options = [("access_key_id", "k"), ("secret_access_key", "canary")];
        Explainer::new(Provider::S3, "quarry", &clients(&options))
    }

    fn generic(text: &str) -> Client {
        Client::Generic { store: "S3", source: text.to_owned().into() }
    }

    fn coded(status: u16, code: &str) -> Client {
        let body = format!("<Error><Code>{code}</Code><Resource>/NoSuchBucket</Resource></Error>");
        generic(&format!("Server returned non-2xx status code: {status} Something: {body}"))
    }

    fn status(code: u16) -> Client {
        generic(&format!("Server returned non-2xx status code: {code} Something: body"))
    }

    #[test]
    fn texts_have_one_line_with_the_code() {
        let body = "<?xml version=\"1.0\"?>\n<Error>\n  <Code>NoSuchBucket</Code>\n  \
                    <Message>The bucket\n is gone</Message>\n</Error>\n";
        let text = format!("status code: 404 Not Found:\n {body}");
        let shown = explainer().error(ErrorKind::NotFound, "gone", text).to_string();
        assert!(shown.ends_with("404 Not Found: NoSuchBucket The bucket is gone"), "{shown}");
        let plain = CleanedText::one_line("two\nlines").to_string();
        assert_eq!(plain, "two lines");
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
            (status(400), ErrorKind::Invalid),
            (status(501), ErrorKind::Unsupported),
            (status(413), ErrorKind::Invalid),
            (status(301), ErrorKind::Invalid),
            (status(404), ErrorKind::NotFound),
            (status(405), ErrorKind::Unsupported),
            (status(408), ErrorKind::Unavailable),
            (status(429), ErrorKind::Unavailable),
            (coded(400, "InvalidBucketName"), ErrorKind::Invalid),
            (coded(400, "AuthorizationHeaderMalformed"), ErrorKind::Invalid),
            (coded(400, "EntityTooLarge"), ErrorKind::Invalid),
            (coded(400, "InvalidArgument"), ErrorKind::Invalid),
            (coded(422, "Unheard"), ErrorKind::Invalid),
            (coded(400, "InvalidAccessKeyId"), ErrorKind::Denied),
            (coded(400, "KMS.DisabledException"), ErrorKind::Denied),
            (coded(400, "RequestTimeTooSkewed"), ErrorKind::Denied),
            (coded(400, "RequestTimeout"), ErrorKind::Unavailable),
            (coded(400, "IncompleteBody"), ErrorKind::Unavailable),
            (coded(400, "XMinioAdminBucketQuotaExceeded"), ErrorKind::Unavailable),
            (coded(404, "NoSuchUpload"), ErrorKind::Unavailable),
            (coded(404, "NoSuchBucket"), ErrorKind::NotFound),
            (generic("builder error: URL scheme is not allowed"), ErrorKind::Invalid),
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
        assert_eq!(answer(&coded(400, "RequestTimeout")), "ambiguous");
        assert_eq!(answer(&coded(400, "InvalidBucketName")), "refused");
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let text = |text: &str| -> Box<dyn std::error::Error> { text.to_owned().into() };
        assert!(explainer().absent(&*text("<Code>NoSuchKey</Code>")).is_ok());
        // Names are chosen by users: one may look like a code.
        let named = "GET /NoSuchBucket/db: <Code>NoSuchKey</Code><Key>NoSuchBucket</Key>";
        assert!(explainer().absent(&*text(named)).is_ok());
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

    #[test]
    fn a_refusal_names_the_right_by_the_request() {
        use Provider::{Azure, Gcs, S3};
        for (provider, text, right) in [
            (S3, "Error performing list request: Error performing GET http://h/b", "s3:ListBucket"),
            (S3, "Error performing GET http://h/b/k", "s3:GetObject"),
            (S3, "Error performing PUT http://h/b/k", "s3:PutObject"),
            (S3, "DeleteObjects request failed for key k: Access Denied", "s3:DeleteObject"),
            (Gcs, "Error performing POST http://h/b/k", "storage.objects.create"),
            (Azure, "Error performing DELETE http://h/b/k", "blobs/delete"),
        ] {
            let named = missing_right(provider, text).unwrap_or_default();
            assert!(named.contains(right), "{text}: {named}");
        }
        assert_eq!(missing_right(S3, "no request"), None);
    }
}
