//! Records in one table of DynamoDB.
//!
//! ```text
//! namespace             name                   other attributes
//! <32 hex digits>       record/<destination>   source │ state: 0 incomplete, 1 complete
//! <32 hex digits>       source/<source>        destination, if incomplete │ state: 2 revoked
//! <32 hex digits>       location               location
//! location/<location>   namespace              bound
//! ```
//! An incomplete record has two items, which are written and removed in one transaction. Each key
//! has at most one item, so the condition "no item has this key" decides every race, as the two
//! unique keys of a SQL table do. A transaction becomes visible item by item: a record is reported
//! only once both of its items are seen.

mod calls;
#[cfg(test)]
mod tests;

use super::records::{InsertOutcome, Outstanding, Record, RecordStore, hex, run_detached};
use crate::env::Effects;
use crate::options::StoreOptions;
use crate::remote::SignedClient;
use calls::{Calls, Reply};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};
use siltstone_base::{Error, ObjectName, Result};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Requests of one operation that are under way at a time.
const AT_ONCE: usize = 8;
/// Looks at a record while a transaction about it becomes visible, and the wait between two. It
/// takes milliseconds.
const LOOKS: usize = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

const RECORDS: &str = "record/";
const SOURCES: &str = "source/";
const INCOMPLETE: &str = "0";
const COMPLETE: &str = "1";
const REVOKED: &str = "2";

type Item = Map<String, Value>;

/// Records in DynamoDB. Cheap to clone.
#[derive(Clone)]
pub struct DynamoRecords {
    shared: Arc<DynamoShared>,
}

struct DynamoShared {
    calls: Calls,
    outstanding: Outstanding,
    effects: Effects,
}

impl fmt::Debug for DynamoRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamoRecords({})", self.shared.calls.table())
    }
}

impl DynamoRecords {
    /// Records at `dynamodb://<place>`, which looks like
    /// `table?region=eu-west-1&endpoint=https://host&profile=name`. No request is made yet. Keys
    /// are found as for an S3 store with `options`.
    ///
    /// # Errors
    /// Invalid for a URL without a table, an unknown parameter, and for rejected options.
    pub fn new(
        place: &str,
        options: &StoreOptions,
        environment: &[(String, String)],
        effects: Effects,
    ) -> Result<DynamoRecords> {
        let (table, query) = place.split_once('?').unwrap_or((place, ""));
        let table = table.trim_end_matches('/');
        let invalid = |text: &str| {
            Error::invalid(format!(
                "store option `transactional_store` {text}; a URL of DynamoDB looks like \
                 dynamodb://table?region=us-east-1"
            ))
        };
        if table.is_empty() || table.contains(['/', '@']) {
            return Err(invalid("names no table"));
        }
        let variable = environment.iter().find(|(name, _)| name == "AWS_ENDPOINT_URL_DYNAMODB");
        let variable = variable.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty());
        let (mut endpoint, mut region, mut options) = (variable, None, options.clone());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("region", value)) => region = Some(value),
                Some(("endpoint", value)) => endpoint = Some(value),
                // Its keys are those of DynamoDB alone.
                Some(("profile", value)) => {
                    options = [("profile".to_owned(), value.to_owned())].into_iter().collect();
                }
                _ => return Err(invalid("has an unknown parameter")),
            }
        }
        let place = (endpoint, region);
        let client = SignedClient::new("dynamodb", place, &options, environment, effects.clone())?;
        let calls = Calls::new(table.to_owned(), client, effects.clone());
        let outstanding = Outstanding::default();
        Ok(DynamoRecords { shared: Arc::new(DynamoShared { calls, outstanding, effects }) })
    }

    /// Runs `work` on the runtime of the effects: the HTTP client needs its timer and sockets.
    fn run<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<DynamoShared>) -> F,
    ) -> BoxFuture<'static, Result<T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let DynamoShared { effects, outstanding, .. } = &*self.shared;
        run_detached(effects, outstanding, work(Arc::clone(&self.shared)))
    }
}

fn key(namespace: u128, name: &str) -> Value {
    json!({"namespace": {"S": hex(namespace)}, "name": {"S": name}})
}

fn key_of_location(location: &str) -> Value {
    json!({"namespace": {"S": format!("location/{location}")}, "name": {"S": "namespace"}})
}

fn key_of_record(namespace: u128, destination: ObjectName) -> Value {
    key(namespace, &format!("{RECORDS}{destination}"))
}

fn key_of_source(namespace: u128, source: ObjectName) -> Value {
    key(namespace, &format!("{SOURCES}{source}"))
}

/// An item of a key with one more attribute, or more.
fn item(key: Value, attributes: &[(&str, Value)]) -> Value {
    let mut item = key;
    if let Some(item) = item.as_object_mut() {
        item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    }
    item
}

fn string(text: impl fmt::Display) -> Value {
    json!({"S": text.to_string()})
}

fn number(digits: &str) -> Value {
    json!({"N": digits})
}

fn text_of<'a>(item: &'a Item, attribute: &str) -> Option<&'a str> {
    let value = item.get(attribute)?;
    value.get("S").or_else(|| value.get("N"))?.as_str()
}

/// The object that an item's attribute names, after a prefix.
fn name_in(item: &Item, attribute: &str, prefix: &str) -> Result<ObjectName> {
    let text = text_of(item, attribute).unwrap_or_default();
    text.strip_prefix(prefix)
        .and_then(ObjectName::parse)
        .ok_or_else(|| Error::corruption("a record names no object").with("found", text))
}

fn record_in(item: &Item) -> Result<Record> {
    Ok(Record {
        destination: name_in(item, "name", RECORDS)?,
        source: name_in(item, "source", "")?,
        complete: text_of(item, "state") == Some(COMPLETE),
    })
}

/// A put that fails if an item has the key already.
fn put_new(calls: &Calls, item: Value) -> Value {
    json!({
        "TableName": calls.table(),
        "Item": item,
        "ConditionExpression": "attribute_not_exists(#name)",
        "ExpressionAttributeNames": {"#name": "name"},
    })
}

/// A delete of an item whose attribute has a value; with `key` alone, of any.
fn delete_if(calls: &Calls, key: Value, (attribute, value): (&str, Value)) -> Value {
    json!({
        "TableName": calls.table(),
        "Key": key,
        "ConditionExpression": "#attribute = :value",
        "ExpressionAttributeNames": {"#attribute": attribute},
        "ExpressionAttributeValues": {":value": value},
    })
}

impl DynamoShared {
    async fn item(&self, key: Value) -> Result<Option<Item>> {
        let table = self.calls.table();
        let asked = json!({"TableName": table, "Key": key, "ConsistentRead": true});
        let mut answer = self.calls.done("GetItem", &asked).await?;
        match answer.get_mut("Item").map(Value::take) {
            Some(Value::Object(item)) => Ok(Some(item)),
            _ => Ok(None),
        }
    }

    /// The items of a namespace whose names begin with a prefix.
    async fn items(&self, namespace: u128, prefix: &str) -> Result<Vec<Item>> {
        let mut asked = json!({
            "TableName": self.calls.table(),
            "ConsistentRead": true,
            "KeyConditionExpression": "#namespace = :namespace AND begins_with(#name, :prefix)",
            "ExpressionAttributeNames": {"#namespace": "namespace", "#name": "name"},
            "ExpressionAttributeValues": {
                ":namespace": string(hex(namespace)),
                ":prefix": string(prefix),
            },
        });
        let mut items = Vec::new();
        loop {
            let mut answer = self.calls.done("Query", &asked).await?;
            if let Some(Value::Array(page)) = answer.get_mut("Items").map(Value::take) {
                items.extend(page.into_iter().filter_map(|item| match item {
                    Value::Object(item) => Some(item),
                    _ => None,
                }));
            }
            match answer.get_mut("LastEvaluatedKey").map(Value::take) {
                Some(last @ Value::Object(_)) => {
                    let asked = asked.as_object_mut();
                    asked.map(|asked| asked.insert("ExclusiveStartKey".to_owned(), last));
                }
                _ => return Ok(items),
            }
        }
    }

    /// The item of an incomplete record's source names its destination.
    async fn is_named(&self, namespace: u128, record: Record) -> Result<bool> {
        let found = self.item(key_of_source(namespace, record.source)).await?;
        Ok(found.is_some_and(|item| text_of(&item, "destination").is_some()))
    }

    async fn look_again(&self) {
        self.effects.clock.sleep(BETWEEN_LOOKS).await;
    }

    fn still_changing(&self) -> Error {
        Error::unavailable("a transaction on a record takes long; it is read again")
            .with("transactional store", "dynamodb")
    }

    async fn get(&self, namespace: u128, name: ObjectName) -> Result<Option<Record>> {
        for _ in 0..LOOKS {
            let found = self.item(key_of_record(namespace, name)).await?;
            let Some(record) = found.as_ref().map(record_in).transpose()? else { return Ok(None) };
            // Without the item of its source, its insert or its completion is under way.
            if record.complete || self.is_named(namespace, record).await? {
                return Ok(Some(record));
            }
            self.look_again().await;
        }
        Err(self.still_changing())
    }

    /// The record of an item of a source, if it is there and incomplete.
    async fn incomplete(&self, namespace: u128, found: &Item) -> Result<Option<Record>> {
        if text_of(found, "destination").is_none() {
            // Revoked.
            return Ok(None);
        }
        let source = name_in(found, "name", SOURCES)?;
        let destination = name_in(found, "destination", "")?;
        let named = Record { destination, source, complete: false };
        for _ in 0..LOOKS {
            let record = self.get(namespace, destination).await?;
            if record.is_some_and(|record| record.source == source) {
                return Ok(record.filter(|record| !record.complete));
            }
            // The record was removed since, or its insert is under way.
            if !self.is_named(namespace, named).await? {
                return Ok(None);
            }
            self.look_again().await;
        }
        Err(self.still_changing())
    }

    async fn list(&self, namespace: u128, complete: bool) -> Result<Vec<Record>> {
        if complete {
            let items = self.items(namespace, RECORDS).await?;
            let records: Vec<_> = items.iter().map(record_in).collect::<Result<_>>()?;
            return Ok(records.into_iter().filter(|record| record.complete).collect());
        }
        let items = self.items(namespace, SOURCES).await?;
        let look = |item: Item| async move { self.incomplete(namespace, &item).await };
        let records = stream::iter(items).map(look);
        let found: Vec<_> = records.buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn insert(
        &self,
        namespace: u128,
        destination: ObjectName,
        source: ObjectName,
    ) -> Result<InsertOutcome> {
        let record = item(
            key_of_record(namespace, destination),
            &[("source", string(source)), ("state", number(INCOMPLETE))],
        );
        let claim = item(key_of_source(namespace, source), &[("destination", string(destination))]);
        let puts = [record, claim].map(|item| json!({"Put": put_new(&self.calls, item)}));
        let answer = self.calls.transact(&puts).await;
        if let Ok(Reply::Done(_)) = answer {
            return Ok(InsertOutcome::Inserted);
        }
        // An unanswered request may have been applied, and a proxy may have sent it twice.
        let found = self.get(namespace, destination).await?;
        if found.is_some_and(|record| record.source == source) {
            return Ok(InsertOutcome::Inserted);
        }
        match answer? {
            Reply::Unmet(unmet) if unmet.get(1) == Some(&true) => {
                match self.item(key_of_source(namespace, source)).await? {
                    Some(item) if text_of(&item, "state") == Some(REVOKED) => {
                        Ok(InsertOutcome::Revoked)
                    }
                    _ => Err(self.still_changing()),
                }
            }
            Reply::Unmet(_) => Ok(InsertOutcome::Taken),
            Reply::Done(_) => Ok(InsertOutcome::Inserted),
            Reply::NoTable => Err(self.calls.no_table()),
        }
    }

    async fn complete(&self, namespace: u128, record: Record) -> Result<()> {
        let table = self.calls.table();
        let update = json!({"Update": {
            "TableName": table,
            "Key": key_of_record(namespace, record.destination),
            "UpdateExpression": "SET #state = :complete",
            "ConditionExpression": "#source = :source AND #state = :incomplete",
            "ExpressionAttributeNames": {"#state": "state", "#source": "source"},
            "ExpressionAttributeValues": {
                ":complete": number(COMPLETE),
                ":incomplete": number(INCOMPLETE),
                ":source": string(record.source),
            },
        }});
        let source = key_of_source(namespace, record.source);
        let release = json!({"Delete": {"TableName": table, "Key": source}});
        // An unmet condition: it was completed, or removed.
        self.calls.transact(&[update, release]).await?.or_no_table(&self.calls)
    }

    async fn remove(&self, namespace: u128, names: Vec<ObjectName>) -> Result<()> {
        let removals = stream::iter(names).map(|name| async move {
            let state = ("state", number(COMPLETE));
            let delete = delete_if(&self.calls, key_of_record(namespace, name), state);
            self.calls.call("DeleteItem", &delete).await?.or_no_table(&self.calls)
        });
        removals.buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn purge(&self, namespace: u128, record: Record) -> Result<()> {
        let source = ("source", string(record.source));
        let delete = delete_if(&self.calls, key_of_record(namespace, record.destination), source);
        if !record.complete {
            let destination = ("destination", string(record.destination));
            let claim = key_of_source(namespace, record.source);
            let claim = delete_if(&self.calls, claim, destination);
            let both = [json!({"Delete": delete}), json!({"Delete": claim})];
            if let Reply::Done(_) = self.calls.transact(&both).await? {
                return Ok(());
            }
            // It was completed since, or is not there.
        }
        self.calls.call("DeleteItem", &delete).await?.or_no_table(&self.calls)
    }

    async fn revoke(&self, namespace: u128, source: ObjectName) -> Result<bool> {
        let key = key_of_source(namespace, source);
        let revoked = item(key.clone(), &[("state", number(REVOKED))]);
        match self.calls.call("PutItem", &put_new(&self.calls, revoked)).await? {
            Reply::Done(_) => Ok(true),
            Reply::NoTable => Err(self.calls.no_table()),
            // Revoked before, or named by a record.
            Reply::Unmet(_) => {
                let found = self.item(key).await?;
                Ok(found.is_some_and(|item| text_of(&item, "state") == Some(REVOKED)))
            }
        }
    }

    /// The namespace that a location is bound to.
    async fn bound(&self, location: &str) -> Result<Option<u128>> {
        let found = self.item(key_of_location(location)).await?;
        let digits = found.as_ref().and_then(|item| text_of(item, "bound"));
        let invalid = || Error::corruption("not a namespace of records").with("location", location);
        digits.map(|digits| u128::from_str_radix(digits, 16).map_err(|_| invalid())).transpose()
    }

    async fn bind(&self, location: &str, fresh: u128) -> Result<u128> {
        // A new database is the first to need the table.
        self.calls.ensure_table(key_of_location(location)).await?;
        if let Some(bound) = self.bound(location).await? {
            return Ok(bound);
        }
        let by_location = item(key_of_location(location), &[("bound", string(hex(fresh)))]);
        let by_namespace = item(key(fresh, "location"), &[("location", string(location))]);
        let puts = [by_location, by_namespace];
        let puts = puts.map(|item| json!({"Put": put_new(&self.calls, item)}));
        if let Reply::Done(_) = self.calls.transact(&puts).await? {
            return Ok(fresh);
        }
        self.bound(location).await?.ok_or_else(|| self.still_changing())
    }

    async fn location_of(&self, namespace: u128) -> Result<Option<String>> {
        let found = self.item(key(namespace, "location")).await?;
        Ok(found.and_then(|item| text_of(&item, "location").map(ToOwned::to_owned)))
    }

    async fn rebind(&self, namespace: u128, location: &str) -> Result<()> {
        let Some(old) = self.location_of(namespace).await? else { return Ok(()) };
        if old == location {
            return Ok(());
        }
        let table = self.calls.table();
        let bound = ("bound", string(hex(namespace)));
        let by_location = item(key_of_location(location), std::slice::from_ref(&bound));
        let by_namespace = item(key(namespace, "location"), &[("location", string(location))]);
        let changes = [
            json!({"Put": {"TableName": table, "Item": by_location}}),
            json!({"Put": {
                "TableName": table,
                "Item": by_namespace,
                "ConditionExpression": "#location = :old",
                "ExpressionAttributeNames": {"#location": "location"},
                "ExpressionAttributeValues": {":old": string(&old)},
            }}),
            json!({"Delete": delete_if(&self.calls, key_of_location(&old), bound)}),
        ];
        match self.calls.transact(&changes).await? {
            Reply::Done(_) => Ok(()),
            Reply::NoTable => Err(self.calls.no_table()),
            // Another process moved it at the same time.
            Reply::Unmet(_) => Err(self.still_changing()),
        }
    }
}

impl RecordStore for DynamoRecords {
    fn kind(&self) -> &'static str {
        "dynamodb"
    }

    fn unanswered(&self) -> Option<String> {
        let waits = self.shared.outstanding.oldest(&self.shared.effects)?;
        Some(format!("the table {} of DynamoDB, {waits}", self.shared.calls.table()))
    }

    fn bind(&self, location: &str, fresh: u128) -> BoxFuture<'_, Result<u128>> {
        let location = location.to_owned();
        self.run(move |shared| async move { shared.bind(&location, fresh).await })
    }

    fn location_of(&self, namespace: u128) -> BoxFuture<'_, Result<Option<String>>> {
        self.run(move |shared| async move { shared.location_of(namespace).await })
    }

    fn rebind(&self, namespace: u128, location: &str) -> BoxFuture<'_, Result<()>> {
        let location = location.to_owned();
        self.run(move |shared| async move { shared.rebind(namespace, &location).await })
    }

    fn insert(
        &self,
        namespace: u128,
        destination: ObjectName,
        source: ObjectName,
    ) -> BoxFuture<'_, Result<InsertOutcome>> {
        self.run(move |shared| async move { shared.insert(namespace, destination, source).await })
    }

    fn get(&self, namespace: u128, name: ObjectName) -> BoxFuture<'_, Result<Option<Record>>> {
        self.run(move |shared| async move { shared.get(namespace, name).await })
    }

    fn list(&self, namespace: u128, complete: bool) -> BoxFuture<'_, Result<Vec<Record>>> {
        self.run(move |shared| async move { shared.list(namespace, complete).await })
    }

    fn complete(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        self.run(move |shared| async move { shared.complete(namespace, record).await })
    }

    fn remove(&self, namespace: u128, names: Vec<ObjectName>) -> BoxFuture<'_, Result<()>> {
        self.run(move |shared| async move { shared.remove(namespace, names).await })
    }

    fn purge(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        self.run(move |shared| async move { shared.purge(namespace, record).await })
    }

    fn revoke(&self, namespace: u128, source: ObjectName) -> BoxFuture<'_, Result<bool>> {
        self.run(move |shared| async move { shared.revoke(namespace, source).await })
    }
}
