//! Requests to DynamoDB, and what its answers mean.
//!
//! Throttled requests and those that conflict with another transaction were not applied, so they
//! are repeated here, after a wait. All other failures go to the caller: a request without an
//! answer may have been applied.

use crate::env::Effects;
use crate::remote::{SendFailure, SignedClient};
use serde_json::{Value, json};
use siltstone_base::{Error, ErrorKind, Result};
use std::time::Duration;

/// Prefix of the operations in the header of a request.
const VERSION: &str = "DynamoDB_20120810";

/// How often a throttled or conflicting request is sent, and the first wait. Each one doubles.
const TRIES: usize = 7;
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// Looks at a table that is created, and the wait between two.
const TABLE_LOOKS: usize = 240;
const BETWEEN_TABLE_LOOKS: Duration = Duration::from_millis(250);

/// Codes of requests that were not applied and may be repeated, and reasons of cancellations.
const BUSY: [&str; 8] = [
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
];
/// Codes of refused credentials and missing rights.
const DENIED: [&str; 8] = [
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
];
/// Codes of requests that no repetition makes right, such as those to a table with other keys.
const INVALID: [&str; 5] = [
    "SerializationException",
    "UnknownOperationException",
    "ValidationError",
    "ValidationException",
    "ItemCollectionSizeLimitExceededException",
];

/// The result of a request.
pub(super) enum Reply {
    /// It was applied.
    Done(Value),
    /// It was not applied: for each part of a transaction, whether its condition does not hold.
    Unmet(Vec<bool>),
    /// It was not applied: there is no such table.
    NoTable,
}

/// The meaning of one answer.
enum Heard {
    Reply(Reply),
    Busy(Error),
}

impl Reply {
    /// Success also where a condition did not hold.
    pub(super) fn or_no_table(self, calls: &Calls) -> Result<()> {
        match self {
            Reply::Done(_) | Reply::Unmet(_) => Ok(()),
            Reply::NoTable => Err(calls.no_table()),
        }
    }
}

/// Requests about one table.
pub(super) struct Calls {
    table: String,
    client: SignedClient,
    effects: Effects,
}

impl Calls {
    pub(super) fn new(table: String, client: SignedClient, effects: Effects) -> Calls {
        Calls { table, client, effects }
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::new(kind, message)
            .with("transactional store", "dynamodb")
            .with("server", self.client.endpoint())
            .with("table", &self.table)
    }

    pub(super) fn no_table(&self) -> Error {
        let message = "the table of the transactional store does not exist: check its name, the \
                       region and the account";
        self.error(ErrorKind::Invalid, message)
    }

    /// Sends a request until it is neither throttled nor in conflict.
    pub(super) async fn call(&self, operation: &str, body: &Value) -> Result<Reply> {
        let (target, bytes) = (format!("{VERSION}.{operation}"), body.to_string().into_bytes());
        let mut wait = FIRST_WAIT;
        let mut tries = 1;
        loop {
            let answer = self.client.send(&target, bytes.clone()).await;
            let (status, answer) = answer.map_err(|failure| match failure {
                SendFailure::Unsent(error) | SendFailure::Unanswered(error) => {
                    error.with("table", &self.table)
                }
            })?;
            match self.hear(operation, status, &answer)? {
                Heard::Reply(reply) => return Ok(reply),
                Heard::Busy(error) if tries == TRIES => return Err(error),
                Heard::Busy(_) => {}
            }
            let share = self.effects.random.next_u64() % 1000;
            self.effects.clock.sleep(wait + wait.mul_f64(share as f64 / 1000.0)).await;
            (wait, tries) = (wait * 2, tries + 1);
        }
    }

    /// A request without a condition.
    pub(super) async fn done(&self, operation: &str, body: &Value) -> Result<Value> {
        match self.call(operation, body).await? {
            Reply::Done(answer) => Ok(answer),
            Reply::NoTable => Err(self.no_table()),
            Reply::Unmet(_) => Err(Error::internal("a condition that was not given")),
        }
    }

    /// Writes several items, all or none.
    pub(super) async fn transact(&self, writes: &[Value]) -> Result<Reply> {
        self.call("TransactWriteItems", &json!({"TransactItems": writes})).await
    }

    fn hear(&self, operation: &str, status: u16, answer: &[u8]) -> Result<Heard> {
        let answer = serde_json::from_slice::<Value>(answer).unwrap_or_default();
        if status == 200 && answer.is_object() {
            return Ok(Heard::Reply(Reply::Done(answer)));
        }
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        let kind = text("__type").unwrap_or_default();
        let code = kind.rsplit_once('#').map_or(kind, |(_, code)| code);
        let told = text("message").or_else(|| text("Message")).unwrap_or_default();
        let told = self.client.clean(&format!("{status} {code}: {told}"));
        let failed = |kind, message: &str| {
            self.error(kind, message).with("operation", operation).with("answer", &told)
        };
        let busy = || {
            failed(
                ErrorKind::Unavailable,
                "the transactional store is busy: it has throttled \
                                            requests, or others write the same records",
            )
        };
        let unanswered = "the transactional store does not answer as it should: check its URL and \
                          server";
        match code {
            // The second one: the table to create exists.
            "ConditionalCheckFailedException" | "ResourceInUseException" => {
                Ok(Heard::Reply(Reply::Unmet(vec![true])))
            }
            "ResourceNotFoundException" => Ok(Heard::Reply(Reply::NoTable)),
            "TransactionCanceledException" => {
                let reasons = reasons(&answer);
                let unmet: Vec<_> =
                    reasons.iter().map(|reason| *reason == "ConditionalCheckFailed").collect();
                if unmet.contains(&true) {
                    Ok(Heard::Reply(Reply::Unmet(unmet)))
                } else if reasons.iter().any(|reason| INVALID.contains(reason)) {
                    Err(failed(ErrorKind::Invalid, unanswered))
                } else {
                    Ok(Heard::Busy(busy()))
                }
            }
            _ if BUSY.contains(&code) => Ok(Heard::Busy(busy())),
            _ if DENIED.contains(&code) => {
                let message = "the transactional store refused the credentials or the permission";
                Err(failed(self.client.refused(), message))
            }
            _ if INVALID.contains(&code) => Err(failed(ErrorKind::Invalid, unanswered)),
            _ => Err(failed(ErrorKind::Unavailable, unanswered)),
        }
    }

    /// Creates the table if there is none: a read of `key` shows it.
    pub(super) async fn ensure_table(&self, key: Value) -> Result<()> {
        let read = json!({"TableName": self.table, "Key": key, "ConsistentRead": true});
        match self.call("GetItem", &read).await? {
            Reply::Done(_) | Reply::Unmet(_) => return Ok(()),
            Reply::NoTable => {}
        }
        let create = json!({
            "TableName": self.table,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                {"AttributeName": "namespace", "AttributeType": "S"},
                {"AttributeName": "name", "AttributeType": "S"},
            ],
            "KeySchema": [
                {"AttributeName": "namespace", "KeyType": "HASH"},
                {"AttributeName": "name", "KeyType": "RANGE"},
            ],
        });
        match self.call("CreateTable", &create).await {
            // Unmet: another process creates it.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Denied => {
                let message = "the table of the transactional store does not exist, and the user \
                               may not create it: create it with the partition key `namespace` \
                               and the sort key `name`, both strings, or allow \
                               dynamodb:CreateTable";
                return Err(self.error(ErrorKind::Denied, message).caused_by(error));
            }
            Err(error) => return Err(error),
        }
        let describe = json!({"TableName": self.table});
        for _ in 0..TABLE_LOOKS {
            if let Reply::Done(answer) = self.call("DescribeTable", &describe).await? {
                let table = answer.get("Table");
                let status = table.and_then(|table| table.get("TableStatus"));
                if status.and_then(Value::as_str) == Some("ACTIVE") {
                    return Ok(());
                }
            }
            self.effects.clock.sleep(BETWEEN_TABLE_LOOKS).await;
        }
        Err(self.error(ErrorKind::Unavailable, "the table of the transactional store is not ready"))
    }
}

/// Why each part of a transaction was not applied; `None` is a text of the service too.
fn reasons(answer: &Value) -> Vec<&str> {
    let reasons = answer.get("CancellationReasons").and_then(Value::as_array);
    reasons
        .into_iter()
        .flatten()
        .map(|reason| reason.get("Code").and_then(Value::as_str).unwrap_or("None"))
        .collect()
}
