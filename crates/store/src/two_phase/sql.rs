//! Records in SQLite, PostgreSQL, MySQL or MariaDB.
//!
//! ```text
//! siltstone_namespaces   location (key)                  │ namespace
//! siltstone_records      namespace, destination (key)    │ source (unique with namespace) │ state
//! ```
//! `state` is 0 for an incomplete record, 1 for a complete one, 2 for a revoked source. A revoked
//! source has `revoked/<source>` as its destination, so the two unique keys decide every race.
//! Every operation is one statement, or reads after one, so no transaction spans round trips.

use super::records::{InsertOutcome, Outstanding, Record, RecordStore, hex, run_detached};
use crate::env::Effects;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, ObjectName, Result};
use sqlx::any::{AnyArguments, AnyPoolOptions, AnyRow, install_default_drivers};
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};
use sqlx::postgres::PgConnectOptions;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AnyPool, AssertSqlSafe, Connection, Executor, Row};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Connections of one process. Creates of one writer are few at a time.
const CONNECTIONS: u32 = 8;
/// How long an operation waits for a connection. Requests are repeated after it.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server has for its answer to one statement. A connection that is silent for longer is
/// most likely dead without a sign, which the system notices after a quarter of an hour.
const ANSWER: Duration = Duration::from_secs(4);
/// Names in one statement that removes records.
const REMOVED_AT_ONCE: usize = 100;

const UNANSWERED: &str =
    "the transactional store does not answer as it should: check its URL and server";

/// Errors of MySQL and MariaDB about a right that the user does not have: on the server, a
/// database, a table or a column.
const MYSQL_DENIALS: [u16; 6] = [1044, 1045, 1142, 1143, 1227, 1698];

/// The error of MySQL and MariaDB for a database that does not exist.
const MYSQL_NO_DATABASE: u16 = 1049;

/// Bytes of a location in a table of MySQL. A key has at most 3072 bytes there.
const MYSQL_LOCATION: usize = 2800;

/// A server may be set to commit nothing by itself, or to show uncommitted rows. Every statement
/// here is a transaction of its own.
const MYSQL_SESSION: [&str; 2] =
    ["SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET SESSION autocommit = 1"];

/// The tables. Columns are binary in MySQL: its texts compare without regard to case or trailing
/// spaces.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS siltstone_namespaces (location VARCHAR(700) NOT NULL PRIMARY KEY, \
     namespace VARCHAR(32) NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS siltstone_records (namespace VARCHAR(32) NOT NULL, destination \
     VARCHAR(120) NOT NULL, source VARCHAR(120) NOT NULL, state BIGINT NOT NULL, PRIMARY KEY \
     (namespace, destination), UNIQUE (namespace, source))",
];
const MYSQL_TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS siltstone_namespaces (location VARBINARY(2800) NOT NULL PRIMARY \
     KEY, namespace VARBINARY(32) NOT NULL UNIQUE) ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
    "CREATE TABLE IF NOT EXISTS siltstone_records (namespace VARBINARY(32) NOT NULL, destination \
     VARBINARY(120) NOT NULL, source VARBINARY(120) NOT NULL, state BIGINT NOT NULL, PRIMARY KEY \
     (namespace, destination), UNIQUE (namespace, source)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
];

/// The option of SQLite's driver that creates a missing file.
const CREATES: &str = "mode=rwc";

const INCOMPLETE: i64 = 0;
const COMPLETE: i64 = 1;
const REVOKED: i64 = 2;

/// The kind of SQL database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Sqlite,
    Postgres,
    /// MySQL or MariaDB.
    MySql,
}

/// Records in a SQL database. Cheap to clone.
#[derive(Clone)]
pub struct SqlRecords {
    shared: Arc<SqlShared>,
}

struct SqlShared {
    dialect: Dialect,
    /// With its password: for the driver alone.
    url: String,
    /// The password, which texts replace.
    password: Option<String>,
    /// Replaced when a server does not answer: its connections may be dead without a sign.
    pool: Mutex<Arc<OnceCell<AnyPool>>>,
    outstanding: Outstanding,
    effects: Effects,
}

impl fmt::Debug for SqlRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlRecords({})", self.kind())
    }
}

impl SqlRecords {
    /// Records at `url`. No connection is made yet.
    ///
    /// # Errors
    /// Invalid for another scheme than `sqlite`, `postgres`, `postgresql`, `mysql` and `mariadb`.
    pub fn new(url: &str, effects: Effects) -> Result<SqlRecords> {
        let dialect = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("sqlite") => Dialect::Sqlite,
            Some("postgres" | "postgresql") => Dialect::Postgres,
            Some("mysql" | "mariadb") => Dialect::MySql,
            _ => {
                return Err(Error::invalid(
                    "store option `transactional_store` is a URL such as sqlite:///path/to/file, \
                     postgres://user@host/database, mysql://user@host/database or \
                     dynamodb://table?region=us-east-1",
                ));
            }
        };
        let full = if dialect == Dialect::Sqlite { sqlite_url(url)? } else { url.to_owned() };
        let shared = SqlShared {
            dialect,
            password: password(url),
            url: full,
            pool: Mutex::default(),
            outstanding: Outstanding::default(),
            effects,
        };
        Ok(SqlRecords { shared: Arc::new(shared) })
    }

    /// Runs `work` on the runtime of the effects: a driver needs its timer and sockets.
    fn run<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<SqlShared>) -> F,
    ) -> BoxFuture<'static, Result<T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let SqlShared { effects, outstanding, dialect, .. } = &*self.shared;
        let (shared, work) = (Arc::clone(&self.shared), work(Arc::clone(&self.shared)));
        if *dialect == Dialect::Sqlite {
            return run_detached(effects, outstanding, work);
        }
        let limit = effects.clock.sleep(ANSWER);
        let limited = select(work.boxed(), limit).map(move |ended| match ended {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(shared.give_up()),
        });
        run_detached(effects, outstanding, limited)
    }
}

/// The URL with an absolute path: other processes may have another working directory. The file is
/// created unless the URL has options of its own.
fn sqlite_url(url: &str) -> Result<String> {
    let path = url.strip_prefix("sqlite://").unwrap_or(url);
    let (path, options) = path.split_once('?').unwrap_or((path, CREATES));
    let absolute = std::path::absolute(path).map_err(|error| {
        Error::invalid("store option `transactional_store` names no file").caused_by(error)
    })?;
    Ok(format!("sqlite://{}?{options}", absolute.display()))
}

/// The password in a URL, if it has one.
fn password(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    (!password.is_empty()).then(|| password.to_owned())
}

/// A statement with `?` in place of `$1` and so on.
fn unnumbered(text: &str) -> String {
    let mut parts = text.split('$');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "?" + part.trim_start_matches(|digit: char| digit.is_ascii_digit())
    })
}

/// The number of an error of MySQL or MariaDB. Its SQLSTATE is only a class.
fn mysql_number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

impl SqlShared {
    /// A statement; its arguments are `$1` and so on, in the order of their numbers.
    fn query<'a>(&self, text: &str) -> Query<'a, Any, AnyArguments> {
        let text = match self.dialect {
            Dialect::Sqlite | Dialect::Postgres => text.to_owned(),
            Dialect::MySql => unnumbered(text),
        };
        sqlx::query(AssertSqlSafe(text))
    }

    /// The text of the error, without the password.
    fn cleaned(&self, error: &sqlx::Error) -> String {
        let text = error.to_string();
        match &self.password {
            Some(password) => text.replace(password.as_str(), "<redacted>"),
            None => text,
        }
    }

    /// The host and port of the server; the file of SQLite.
    fn server(&self) -> String {
        let address = match self.dialect {
            Dialect::Sqlite => return self.url.clone(),
            Dialect::Postgres => self
                .url
                .parse::<PgConnectOptions>()
                .map(|options| format!("{}:{}", options.get_host(), options.get_port())),
            Dialect::MySql => self
                .url
                .parse::<MySqlConnectOptions>()
                .map(|options| format!("{}:{}", options.get_host(), options.get_port())),
        };
        address.unwrap_or_else(|_| "unknown".to_owned())
    }

    /// A first connection. Where it is refused before any connection was made, the URL is wrong or
    /// the server is not there, so retries until the deadline would tell nothing more. A connection
    /// that is only slow (a busy machine, a locked file) is tried again.
    async fn reach(&self) -> Result<()> {
        let connected = pin!(AnyConnection::connect(&self.url));
        let answer = match select(connected, self.effects.clock.sleep(CONNECT)).await {
            Either::Left((Ok(connection), _)) => {
                drop(connection.close().await);
                return Ok(());
            }
            Either::Left((Err(error), _)) if self.is_answered(&error) => {
                return Err(self.explain(&error));
            }
            Either::Left((Err(error), _)) => self.cleaned(&error),
            Either::Right(_) => {
                let answer = format!("none within {} s", CONNECT.as_secs());
                return Err(self.error(ErrorKind::Unavailable, UNANSWERED, answer));
            }
        };
        let message = "no connection can be made to the transactional store: check its URL, the \
                       server and the network";
        Err(match self.dialect {
            Dialect::Sqlite => self.error(ErrorKind::Invalid, message, answer),
            _ => self.error(ErrorKind::Unavailable, message, answer).not_repeated(),
        })
    }

    /// Checks that SQLite can open its file, before the first question about an existing database:
    /// its driver creates a missing file, as a mistyped path names one.
    async fn check_file(&self) -> Result<()> {
        let Some(start) = self.url.strip_suffix(CREATES) else { return Ok(()) };
        if self.dialect != Dialect::Sqlite || self.pool.lock().initialized() {
            return Ok(());
        }
        install_default_drivers();
        match AnyConnection::connect(&format!("{start}mode=rw")).await {
            Ok(connection) => drop(connection.close().await),
            Err(error) if !self.is_answered(&error) => {
                let message = "the file of the transactional store does not exist, or cannot be \
                               opened: give the path of the file that the database was created \
                               with, or restore that file from its backup";
                return Err(self.error(ErrorKind::Invalid, message, self.cleaned(&error)));
            }
            // The first query gives the reason.
            Err(_) => {}
        }
        Ok(())
    }

    /// Whether a server has answered with the error. SQLite has no server; its code 14 is a file
    /// that cannot be opened.
    fn is_answered(&self, error: &sqlx::Error) -> bool {
        let answered = error.as_database_error();
        answered.is_some_and(|error| {
            self.dialect != Dialect::Sqlite || error.code().is_none_or(|code| code != "14")
        })
    }

    fn explain(&self, error: &sqlx::Error) -> Error {
        let text = self.cleaned(error);
        let code = error.as_database_error().and_then(|error| error.code());
        let code = code.unwrap_or_default();
        let number = mysql_number(error).unwrap_or_default();
        let is_denied =
            code.starts_with("28") || code == "42501" || MYSQL_DENIALS.contains(&number);
        // 26: a file that is no database; 11: a damaged one. PostgreSQL and MySQL answer the others
        // for a database that does not exist. A retry changes none of them.
        let kind = match (self.dialect, &*code) {
            _ if is_denied => ErrorKind::Denied,
            (Dialect::Sqlite, "26") | (Dialect::Postgres, "3D000") => ErrorKind::Invalid,
            (Dialect::MySql, _) if number == MYSQL_NO_DATABASE => ErrorKind::Invalid,
            (Dialect::Sqlite, "11") => ErrorKind::Corruption,
            _ if matches!(error, sqlx::Error::Configuration(_)) => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        };
        let message = match kind {
            ErrorKind::Denied => {
                "the transactional store refused the user: check the URL and the permissions"
            }
            ErrorKind::Invalid => {
                "the URL of the transactional store is wrong or names no database"
            }
            ErrorKind::Corruption => "the file of the transactional store is damaged",
            _ => UNANSWERED,
        };
        self.error(kind, message, text)
    }

    fn error(&self, kind: ErrorKind, message: &'static str, answer: String) -> Error {
        Error::new(kind, message)
            .with("transactional store", self.kind())
            .with("server", self.server())
            .with("answer", answer)
    }

    fn kind(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => "sqlite",
            Dialect::Postgres => "postgres",
            Dialect::MySql => "mysql",
        }
    }

    async fn pool(&self) -> Result<AnyPool> {
        let pool = Arc::clone(&self.pool.lock());
        pool.get_or_try_init(|| self.connect()).await.cloned()
    }

    /// Ends the use of the present connections: the pool would test one that is dead, and wait.
    fn give_up(&self) -> Error {
        *self.pool.lock() = Arc::default();
        self.error(ErrorKind::Unavailable, UNANSWERED, format!("none within {ANSWER:?}"))
    }

    async fn connect(&self) -> Result<AnyPool> {
        install_default_drivers();
        self.reach().await?;
        let statements: &'static [&'static str] = match self.dialect {
            Dialect::MySql => &MYSQL_SESSION,
            Dialect::Sqlite | Dialect::Postgres => &[],
        };
        let options = AnyPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT)
            .after_connect(move |connection, _| {
                async move {
                    for statement in statements {
                        connection.execute(*statement).await?;
                    }
                    Ok(())
                }
                .boxed()
            });
        let pool = options.connect(&self.url).await.map_err(|error| self.explain(&error))?;
        let look = "SELECT namespace FROM siltstone_records WHERE 1 = 0";
        if self.query(look).fetch_optional(&pool).await.is_ok() {
            return Ok(pool);
        }
        let tables = match self.dialect {
            Dialect::MySql => MYSQL_TABLES,
            Dialect::Sqlite | Dialect::Postgres => TABLES,
        };
        for table in tables {
            if let Err(error) = self.query(table).execute(&pool).await
                // Two processes may create them at once.
                && self.query(look).fetch_optional(&pool).await.is_err()
                && self.query(table).execute(&pool).await.is_err()
            {
                return Err(self.explain(&error));
            }
        }
        Ok(pool)
    }

    async fn execute(&self, query: Query<'_, Any, AnyArguments>) -> Result<()> {
        let done = query.execute(&self.pool().await?).await;
        done.map(drop).map_err(|error| self.explain(&error))
    }

    /// Whether the row was inserted; `false` where a unique key is taken.
    async fn insert_row(&self, query: Query<'_, Any, AnyArguments>) -> Result<bool> {
        match query.execute(&self.pool().await?).await {
            Ok(_) => Ok(true),
            Err(error)
                if error.as_database_error().is_some_and(|one| one.is_unique_violation()) =>
            {
                Ok(false)
            }
            Err(error) => Err(self.explain(&error)),
        }
    }

    async fn rows(&self, query: Query<'_, Any, AnyArguments>) -> Result<Vec<AnyRow>> {
        query.fetch_all(&self.pool().await?).await.map_err(|error| self.explain(&error))
    }

    /// A column as text. Those of MySQL are binary.
    fn column(&self, row: &AnyRow, at: usize) -> Result<String> {
        if self.dialect != Dialect::MySql {
            return row.try_get(at).map_err(|error| self.explain(&error));
        }
        let bytes: Vec<u8> = row.try_get(at).map_err(|error| self.explain(&error))?;
        String::from_utf8(bytes).map_err(|_| {
            Error::corruption("a record is not text").with("transactional store", self.kind())
        })
    }

    async fn text(&self, query: Query<'_, Any, AnyArguments>) -> Result<Option<String>> {
        let rows = self.rows(query).await?;
        rows.first().map(|row| self.column(row, 0)).transpose()
    }

    fn record(&self, row: &AnyRow) -> Result<Record> {
        let name = |text: String| {
            ObjectName::parse(&text)
                .ok_or_else(|| Error::corruption("a record names no object").with("found", text))
        };
        let state: i64 = row.try_get(2).map_err(|error| self.explain(&error))?;
        Ok(Record {
            destination: name(self.column(row, 0)?)?,
            source: name(self.column(row, 1)?)?,
            complete: state == COMPLETE,
        })
    }

    /// A server that does not check lengths would cut a longer location off.
    fn check_length(&self, location: &str) -> Result<()> {
        if self.dialect != Dialect::MySql || location.len() <= MYSQL_LOCATION {
            return Ok(());
        }
        let text = "the URL of the database is longer than 2800 bytes, which the transactional \
                    store cannot record";
        Err(Error::invalid(text).with("transactional store", self.kind()))
    }

    async fn bind(&self, location: String, fresh: u128) -> Result<u128> {
        self.check_length(&location)?;
        let insert = "INSERT INTO siltstone_namespaces (location, namespace) VALUES ($1, $2)";
        self.insert_row(self.query(insert).bind(location.clone()).bind(hex(fresh))).await?;
        let select = "SELECT namespace FROM siltstone_namespaces WHERE location = $1";
        let found = self.text(self.query(select).bind(location)).await?;
        found
            .and_then(|text| u128::from_str_radix(&text, 16).ok())
            .ok_or_else(|| Error::unavailable("a namespace of records was removed meanwhile"))
    }

    async fn insert(
        &self,
        namespace: u128,
        destination: ObjectName,
        source: ObjectName,
    ) -> Result<InsertOutcome> {
        let insert = "INSERT INTO siltstone_records (namespace, destination, source, state) VALUES \
                      ($1, $2, $3, $4)";
        let query = self.query(insert).bind(hex(namespace)).bind(destination.to_string());
        if self.insert_row(query.bind(source.to_string()).bind(INCOMPLETE)).await? {
            return Ok(InsertOutcome::Inserted);
        }
        let select =
            "SELECT destination FROM siltstone_records WHERE namespace = $1 AND source = $2";
        let query = self.query(select).bind(hex(namespace)).bind(source.to_string());
        let is_revoked = self.text(query).await?.is_some();
        Ok(if is_revoked { InsertOutcome::Revoked } else { InsertOutcome::Taken })
    }

    async fn remove(&self, namespace: u128, names: &[ObjectName]) -> Result<()> {
        for names in names.chunks(REMOVED_AT_ONCE) {
            let places: Vec<_> = (0..names.len()).map(|at| format!("${}", at + 3)).collect();
            let delete = format!(
                "DELETE FROM siltstone_records WHERE namespace = $1 AND state = $2 AND destination \
                 IN ({})",
                places.join(", ")
            );
            let query = self.query(&delete).bind(hex(namespace)).bind(COMPLETE);
            let query = names.iter().fold(query, |query, name| query.bind(name.to_string()));
            self.execute(query).await?;
        }
        Ok(())
    }
}

impl RecordStore for SqlRecords {
    fn kind(&self) -> &'static str {
        self.shared.kind()
    }

    fn unanswered(&self) -> Option<String> {
        let waits = self.shared.outstanding.oldest(&self.shared.effects)?;
        let (kind, address) = (self.kind(), self.shared.server());
        Some(format!("the transactional store ({kind}, {address}), {waits}"))
    }

    fn bind(&self, location: &str, fresh: u128) -> BoxFuture<'_, Result<u128>> {
        let location = location.to_owned();
        self.run(move |shared| async move { shared.bind(location, fresh).await })
    }

    fn location_of(&self, namespace: u128) -> BoxFuture<'_, Result<Option<String>>> {
        self.run(move |shared| async move {
            shared.check_file().await?;
            let select = "SELECT location FROM siltstone_namespaces WHERE namespace = $1";
            shared.text(shared.query(select).bind(hex(namespace))).await
        })
    }

    fn rebind(&self, namespace: u128, location: &str) -> BoxFuture<'_, Result<()>> {
        let location = location.to_owned();
        self.run(move |shared| async move {
            shared.check_length(&location)?;
            let update = "UPDATE siltstone_namespaces SET location = $1 WHERE namespace = $2";
            shared.execute(shared.query(update).bind(location).bind(hex(namespace))).await
        })
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
        self.run(move |shared| async move {
            let select = "SELECT destination, source, state FROM siltstone_records WHERE \
                          namespace = $1 AND destination = $2";
            let query = shared.query(select).bind(hex(namespace)).bind(name.to_string());
            let rows = shared.rows(query).await?;
            rows.first().map(|row| shared.record(row)).transpose()
        })
    }

    fn list(&self, namespace: u128, complete: bool) -> BoxFuture<'_, Result<Vec<Record>>> {
        self.run(move |shared| async move {
            let select = "SELECT destination, source, state FROM siltstone_records WHERE \
                          namespace = $1 AND state = $2";
            let state = if complete { COMPLETE } else { INCOMPLETE };
            let rows = shared.rows(shared.query(select).bind(hex(namespace)).bind(state)).await?;
            rows.iter().map(|row| shared.record(row)).collect()
        })
    }

    fn complete(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        self.run(move |shared| async move {
            let update = "UPDATE siltstone_records SET state = $1 WHERE namespace = $2 AND \
                          destination = $3 AND source = $4 AND state = $5";
            let query = shared.query(update).bind(COMPLETE).bind(hex(namespace));
            let query = query.bind(record.destination.to_string()).bind(record.source.to_string());
            shared.execute(query.bind(INCOMPLETE)).await
        })
    }

    fn remove(&self, namespace: u128, names: Vec<ObjectName>) -> BoxFuture<'_, Result<()>> {
        self.run(move |shared| async move { shared.remove(namespace, &names).await })
    }

    fn purge(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        self.run(move |shared| async move {
            let delete = "DELETE FROM siltstone_records WHERE namespace = $1 AND destination = $2 \
                          AND source = $3";
            let query = shared.query(delete).bind(hex(namespace));
            let query = query.bind(record.destination.to_string()).bind(record.source.to_string());
            shared.execute(query).await
        })
    }

    fn revoke(&self, namespace: u128, source: ObjectName) -> BoxFuture<'_, Result<bool>> {
        self.run(move |shared| async move {
            let insert = "INSERT INTO siltstone_records (namespace, destination, source, state) \
                          VALUES ($1, $2, $3, $4)";
            let query = shared.query(insert).bind(hex(namespace)).bind(format!("revoked/{source}"));
            let inserted = shared.insert_row(query.bind(source.to_string()).bind(REVOKED)).await?;
            if inserted {
                return Ok(true);
            }
            // Revoked before, or named by a record.
            let select = "SELECT destination FROM siltstone_records WHERE namespace = $1 AND \
                          source = $2 AND state = $3";
            let query = shared.query(select).bind(hex(namespace)).bind(source.to_string());
            Ok(shared.text(query.bind(REVOKED)).await?.is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::tests::effects as immediate;
    use crate::task::tokio_effects;
    use std::net::TcpListener;

    #[test]
    fn placeholders_of_mysql_have_no_numbers() {
        let text = unnumbered("a = $1 AND b IN ($2, $10) AND c = $11");
        assert_eq!(text, "a = ? AND b IN (?, ?) AND c = ?");
        assert_eq!(unnumbered("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn a_question_about_a_database_creates_no_file() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/records", folder.path().display());
        let records = || SqlRecords::new(&url, tokio_effects(runtime.handle().clone())).unwrap();
        let error = runtime.block_on(records().location_of(7)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("does not exist"), "{error}");
        assert!(!folder.path().join("records").exists());
        assert_eq!(runtime.block_on(records().bind("file:///db", 7)).unwrap(), 7);
        let found = runtime.block_on(records().location_of(7)).unwrap();
        assert_eq!(found.as_deref(), Some("file:///db"));
    }

    #[test]
    fn only_a_refused_connection_is_not_repeated() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let effects = tokio_effects(runtime.handle().clone());
        // Every wait is over at once.
        let hasty = Effects { clock: immediate().clock, ..effects.clone() };
        let asked = |address: String, effects: Effects| {
            let records = SqlRecords::new(&format!("postgres://app:x@{address}/db"), effects);
            runtime.block_on(records.unwrap().location_of(7)).unwrap_err()
        };
        // The kernel accepts the connection, and the server says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let error = asked(address.clone(), hasty);
        assert_eq!((error.kind(), error.may_be_repeated()), (ErrorKind::Unavailable, true));
        assert!(error.to_string().contains(&address), "{error}");
        drop(silent);
        let error = asked(address, effects);
        assert_eq!((error.kind(), error.may_be_repeated()), (ErrorKind::Unavailable, false));
    }
}
