//! Requests applied to the state, as S3 defines them. Each runs under one lock, so conditions are
//! exact under races.

use crate::bucket::{BucketState, PendingUpload, ServerState, StoredObject, etag};
use crate::call::{Call, Kind, within};
use crate::listing::{self, Disturbance};
use crate::{time, xml};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// An answer, before faults and pace.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// Length of the body that a HEAD announces and does not send.
    pub(crate) announced: Option<u64>,
}

impl Answer {
    pub(crate) fn new(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Bytes::new(), announced: None }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Answer {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn body(mut self, body: impl Into<Bytes>) -> Answer {
        self.body = body.into();
        self
    }

    pub(crate) fn xml(status: u16, body: String) -> Answer {
        Answer::new(status).with("content-type", "application/xml").body(body)
    }

    pub(crate) fn error(status: u16, code: &str, message: &str) -> Answer {
        Answer::xml(status, xml::error(code, message))
    }
}

/// How one request is applied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// By the clock of the server.
    pub(crate) now: u64,
    /// Conditions of writes are not looked at.
    pub(crate) ignores_conditions: bool,
    /// Conditions are checked, and nothing else is done.
    pub(crate) checks_only: bool,
    pub(crate) disturbance: Option<Disturbance>,
    /// Every second key of a bulk delete fails.
    pub(crate) fails_halfway: bool,
    /// The least time between two writes of one key, in milliseconds.
    pub(crate) write_interval: Option<u64>,
}

type Done = Result<Answer, Answer>;

/// Applies a request.
pub(crate) fn apply(state: &mut ServerState, call: &Call, manner: Manner) -> Answer {
    let done = match call.kind {
        Kind::Bucket => bucket(state, call),
        Kind::CreateUpload | Kind::Part | Kind::Complete | Kind::Abort | Kind::ListUploads => {
            uploads(state, call, manner)
        }
        Kind::Copy => copy(state, call, manner),
        Kind::Put => {
            let object = StoredObject {
                bytes: call.body.clone(),
                etag: etag(&call.body),
                modified: manner.now,
                attributes: attributes(call),
                number: state.next_number(),
            };
            store(state, call, object, manner)
        }
        Kind::Get | Kind::Head | Kind::List | Kind::Delete | Kind::DeleteMany => {
            match state.buckets.get_mut(&call.bucket) {
                Some(bucket) => in_bucket(bucket, call, manner),
                None => Err(no_bucket()),
            }
        }
    };
    done.unwrap_or_else(|refused| refused)
}

fn no_bucket() -> Answer {
    Answer::error(404, "NoSuchBucket", "The specified bucket does not exist")
}

fn no_key() -> Answer {
    Answer::error(404, "NoSuchKey", "The specified key does not exist.")
}

fn failed_condition() -> Answer {
    let text = "At least one of the pre-conditions you specified did not hold";
    Answer::error(412, "PreconditionFailed", text)
}

fn in_bucket(bucket: &mut BucketState, call: &Call, manner: Manner) -> Done {
    match call.kind {
        Kind::List => listing::answer(bucket, call, manner.disturbance),
        Kind::DeleteMany => Ok(delete_many(bucket, call, manner)),
        Kind::Delete => {
            check_target(bucket.objects.get(&call.key), call, manner)?;
            bucket.remove(&call.key);
            Ok(Answer::new(204))
        }
        _ if call.key.is_empty() => Ok(Answer::new(200)),
        _ => read(bucket.objects.get(&call.key).ok_or_else(no_key)?, call),
    }
}

fn bucket(state: &mut ServerState, call: &Call) -> Done {
    match call.method.as_str() {
        "PUT" => {
            state.buckets.entry(call.bucket.clone()).or_default();
            Ok(Answer::new(200).with("location", format!("/{}", call.bucket)))
        }
        "DELETE" => {
            let bucket = state.buckets.get(&call.bucket).ok_or_else(no_bucket)?;
            if !bucket.objects.is_empty() {
                let text = "The bucket you tried to delete is not empty";
                return Err(Answer::error(409, "BucketNotEmpty", text));
            }
            state.buckets.remove(&call.bucket);
            Ok(Answer::new(204))
        }
        _ => {
            state.buckets.get(&call.bucket).ok_or_else(no_bucket)?;
            Ok(Answer::xml(200, xml::document("LocationConstraint", "")))
        }
    }
}

/// Headers of a PUT that its object keeps.
fn attributes(call: &Call) -> Vec<(String, String)> {
    const KEPT: [&str; 6] = [
        "content-type",
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "expires",
    ];
    let kept = call.headers.iter().filter(|(name, _)| {
        KEPT.contains(&name.as_str()) || name.as_str().starts_with("x-amz-meta-")
    });
    let texts = kept.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    texts.map(|(name, value)| (name.to_owned(), value.replace("aws-chunked,", ""))).collect()
}

fn matches(etag: &str, header: &str) -> bool {
    let plain = |text: &str| text.trim().trim_start_matches("W/").trim_matches('"').to_owned();
    header.split(',').any(|each| each.trim() == "*" || plain(each) == plain(etag))
}

/// The conditions of a write.
fn check_target(found: Option<&StoredObject>, call: &Call, manner: Manner) -> Result<(), Answer> {
    if manner.ignores_conditions {
        return Ok(());
    }
    match call.header("if-none-match") {
        Some("*") if found.is_some() => return Err(failed_condition()),
        Some("*") | None => {}
        Some(_) => {
            let text = "A header you provided implies functionality that is not implemented";
            return Err(Answer::error(501, "NotImplemented", text));
        }
    }
    match (call.header("if-match"), found) {
        (Some(_), None) => Err(no_key()),
        (Some(wanted), Some(found)) if !matches(&found.etag, wanted) => Err(failed_condition()),
        _ => Ok(()),
    }
}

/// Stores an object under the key of a request, if the conditions of the request hold.
fn store(state: &mut ServerState, call: &Call, object: StoredObject, manner: Manner) -> Done {
    let bucket = state.buckets.get_mut(&call.bucket).ok_or_else(no_bucket)?;
    check_target(bucket.objects.get(&call.key), call, manner)?;
    if let Some(interval) = manner.write_interval {
        let last = bucket.written.insert(call.key.clone(), manner.now);
        if last.is_some_and(|last| manner.now < last + interval) {
            let text = "The object exceeded the rate limit for object mutation operations";
            return Err(Answer::error(429, "SlowDown", text));
        }
    }
    let answer = Answer::new(200).with("etag", object.etag.clone());
    if !manner.checks_only {
        bucket.objects.insert(call.key.clone(), object);
    }
    Ok(answer)
}

fn read(object: &StoredObject, call: &Call) -> Done {
    if call.header("if-match").is_some_and(|wanted| !matches(&object.etag, wanted)) {
        return Err(failed_condition());
    }
    let described = |mut answer: Answer| {
        answer.headers.extend(object.attributes.iter().cloned());
        let answer = answer.with("etag", object.etag.clone()).with("accept-ranges", "bytes");
        answer.with("last-modified", time::http(object.modified))
    };
    if call.header("if-none-match").is_some_and(|known| matches(&object.etag, known)) {
        return Ok(described(Answer::new(304)));
    }
    let length = object.bytes.len() as u64;
    if call.kind == Kind::Head {
        return Ok(Answer { announced: Some(length), ..described(Answer::new(200)) });
    }
    let Some(range) = call.range() else {
        return Ok(described(Answer::new(200)).body(object.bytes.clone()));
    };
    let Some(range) = within(range, length) else {
        let text = "The requested range is not satisfiable";
        let refused = Answer::error(416, "InvalidRange", text);
        return Err(refused.with("content-range", format!("bytes */{length}")));
    };
    let header = format!("bytes {}-{}/{length}", range.start, range.end - 1);
    let part = object.bytes.slice(range.start as usize..range.end as usize);
    Ok(described(Answer::new(206)).with("content-range", header).body(part))
}

/// The source of a copy.
fn source(state: &ServerState, call: &Call) -> Result<StoredObject, Answer> {
    let named = call.header("x-amz-copy-source").unwrap_or_default();
    let named = named.split("?versionId=").next().unwrap_or_default();
    let decoded = percent_decode_str(named).decode_utf8_lossy().into_owned();
    let (bucket, key) = decoded.trim_start_matches('/').split_once('/').ok_or_else(no_key)?;
    let bucket = state.buckets.get(bucket).ok_or_else(no_bucket)?;
    let object = bucket.objects.get(key).ok_or_else(no_key)?;
    let wanted = call.header("x-amz-copy-source-if-match");
    let unwanted = call.header("x-amz-copy-source-if-none-match");
    if wanted.is_some_and(|wanted| !matches(&object.etag, wanted))
        || unwanted.is_some_and(|unwanted| matches(&object.etag, unwanted))
    {
        return Err(failed_condition());
    }
    Ok(object.clone())
}

fn copy(state: &mut ServerState, call: &Call, manner: Manner) -> Done {
    let mut object = source(state, call)?;
    if call.header("x-amz-metadata-directive") == Some("REPLACE") {
        object.attributes = attributes(call);
    }
    object.number = state.next_number();
    object.modified = manner.now;
    let content = described(&object.etag, object.modified);
    store(state, call, object, manner)?;
    Ok(Answer::xml(200, xml::document("CopyObjectResult", &content)))
}

fn described(etag: &str, modified: u64) -> String {
    [xml::element("LastModified", &time::iso(modified)), xml::element("ETag", etag)].concat()
}

fn delete_many(bucket: &mut BucketState, call: &Call, manner: Manner) -> Answer {
    let body = String::from_utf8_lossy(&call.body);
    let is_quiet = xml::text(&body, "Quiet").as_deref() == Some("true");
    let keys: Vec<String> =
        xml::elements(&body, "Object").iter().filter_map(|each| xml::text(each, "Key")).collect();
    if keys.is_empty() || keys.len() > 1000 {
        return Answer::error(400, "MalformedXML", "The XML you provided was not well-formed");
    }
    let mut content = String::new();
    for (at, key) in keys.iter().enumerate() {
        let key_text = xml::element("Key", key);
        if manner.fails_halfway && at % 2 == 1 {
            let text = "<Code>InternalError</Code><Message>We encountered an internal error\
                        </Message>";
            content.push_str(&format!("<Error>{key_text}{text}</Error>"));
            continue;
        }
        bucket.remove(key);
        if !is_quiet {
            content.push_str(&format!("<Deleted>{key_text}</Deleted>"));
        }
    }
    Answer::xml(200, xml::document("DeleteResult", &content))
}

fn uploads(state: &mut ServerState, call: &Call, manner: Manner) -> Done {
    if !state.buckets.contains_key(&call.bucket) {
        return Err(no_bucket());
    }
    let id = call.parameter("uploadId").unwrap_or_default().to_owned();
    let place =
        format!("{}{}", xml::element("Bucket", &call.bucket), xml::element("Key", &call.key));
    if call.kind == Kind::CreateUpload {
        let id = format!("upload-{}", state.next_number());
        let upload = PendingUpload {
            bucket: call.bucket.clone(),
            key: call.key.clone(),
            attributes: attributes(call),
            parts: BTreeMap::new(),
            begun: manner.now,
        };
        state.uploads.insert(id.clone(), upload);
        let content = place + &xml::element("UploadId", &id);
        return Ok(Answer::xml(200, xml::document("InitiateMultipartUploadResult", &content)));
    }
    if call.kind == Kind::ListUploads && call.key.is_empty() {
        return Ok(pending(state, call));
    }
    let copied = match call.header("x-amz-copy-source") {
        Some(_) => Some(source(state, call)?.bytes),
        None => None,
    };
    let known = state.uploads.get_mut(&id);
    let known = known.filter(|upload| upload.bucket == call.bucket && upload.key == call.key);
    let Some(upload) = known else {
        return Err(Answer::error(404, "NoSuchUpload", "The specified upload does not exist."));
    };
    match call.kind {
        Kind::Part => part(upload, call, copied, manner),
        Kind::Complete => complete(state, call, &id, manner),
        Kind::Abort => {
            state.uploads.remove(&id);
            Ok(Answer::new(204))
        }
        _ => {
            let listed = upload.parts.iter().map(|(number, (etag, bytes))| {
                let size = xml::element("Size", &bytes.len().to_string());
                let number = xml::element("PartNumber", &number.to_string());
                format!("<Part>{number}{}{size}</Part>", xml::element("ETag", etag))
            });
            let content = place + &xml::element("UploadId", &id) + &listed.collect::<String>();
            let content = content + "<IsTruncated>false</IsTruncated>";
            Ok(Answer::xml(200, xml::document("ListPartsResult", &content)))
        }
    }
}

/// The uploads of a bucket.
fn pending(state: &ServerState, call: &Call) -> Answer {
    let prefix = call.parameter("prefix").unwrap_or_default();
    let ours = state
        .uploads
        .iter()
        .filter(|(_, upload)| upload.bucket == call.bucket && upload.key.starts_with(prefix));
    let listed = ours.map(|(id, upload)| {
        let begun = xml::element("Initiated", &time::iso(upload.begun));
        let (key, id) = (xml::element("Key", &upload.key), xml::element("UploadId", id));
        format!("<Upload>{key}{id}{begun}</Upload>")
    });
    let content = xml::element("Bucket", &call.bucket) + &listed.collect::<String>();
    let content = content + "<IsTruncated>false</IsTruncated>";
    Answer::xml(200, xml::document("ListMultipartUploadsResult", &content))
}

fn part(upload: &mut PendingUpload, call: &Call, copied: Option<Bytes>, manner: Manner) -> Done {
    let number = call.parameter("partNumber").and_then(|number| number.parse().ok());
    let Some(number) = number.filter(|number| (1..=10_000).contains(number)) else {
        let text = "Part number must be an integer between 1 and 10000, inclusive";
        return Err(Answer::error(400, "InvalidArgument", text));
    };
    let is_copy = copied.is_some();
    let bytes = copied.unwrap_or_else(|| call.body.clone());
    let etag = etag(&bytes);
    upload.parts.insert(number, (etag.clone(), bytes));
    if is_copy {
        let content = described(&etag, manner.now);
        return Ok(Answer::xml(200, xml::document("CopyPartResult", &content)));
    }
    Ok(Answer::new(200).with("etag", etag))
}

/// The least bytes of a part that is not the last one.
const LEAST_PART: usize = 5 << 20;

fn complete(state: &mut ServerState, call: &Call, id: &str, manner: Manner) -> Done {
    let invalid = |code: &str, text: &str| Answer::error(400, code, text);
    let body = String::from_utf8_lossy(&call.body);
    let mut wanted: Vec<(u32, String)> = Vec::new();
    for part in xml::elements(&body, "Part") {
        let number = xml::text(part, "PartNumber").and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| invalid("MalformedXML", "A part has no number"))?;
        if wanted.last().is_some_and(|(last, _)| *last >= number) {
            return Err(invalid("InvalidPartOrder", "The parts are not in ascending order"));
        }
        wanted.push((number, xml::text(part, "ETag").unwrap_or_default()));
    }
    let Some(upload) = state.uploads.get(id).filter(|_| !wanted.is_empty()) else {
        return Err(invalid("MalformedXML", "The list of parts is empty"));
    };
    let mut joined = Vec::new();
    for (at, (number, etag)) in wanted.iter().enumerate() {
        let found = upload.parts.get(number).filter(|(known, _)| matches(known, etag));
        let (_, bytes) = found.ok_or_else(|| invalid("InvalidPart", "A part was not found"))?;
        if bytes.len() < LEAST_PART && at + 1 < wanted.len() {
            return Err(invalid("EntityTooSmall", "A part is smaller than the allowed size"));
        }
        joined.extend_from_slice(bytes);
    }
    let plain = etag(&joined);
    let etag = format!("{}-{}\"", plain.trim_end_matches('"'), wanted.len());
    let object = StoredObject {
        bytes: joined.into(),
        etag: etag.clone(),
        modified: manner.now,
        attributes: upload.attributes.clone(),
        number: state.next_number(),
    };
    store(state, call, object, manner)?;
    state.uploads.remove(id);
    let content = [
        xml::element("Bucket", &call.bucket),
        xml::element("Key", &call.key),
        xml::element("ETag", &etag),
    ];
    Ok(Answer::xml(200, xml::document("CompleteMultipartUploadResult", &content.concat())))
}
