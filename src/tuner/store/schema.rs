//! Tables of the store, and the steps from one version of them to the next.

use super::columns::{COLUMNS, Kind};
use super::{StoreError, sql};
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

/// Version of the tables written here.
pub const VERSION: u32 = 2;
/// Marks a database as ours in its header: "cbtp".
const APPLICATION: i64 = 0x6362_7470;

/// What two rows may not share.
const SAME_RUN: &str = "trial_key, origin, source, ifnull(unix_s, -1), tok_s";

/// Brings a database to [`VERSION`]; a new one gets its tables.
///
/// # Errors
/// A database of another program or of a newer cbtop, or one whose tables are not what its version says.
pub fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let found = version(db, path)?;
    if found < VERSION {
        let step = |db: &mut Connection| -> Result<(), StoreError> {
            let tx = db
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(|e| sql(path, e))?;
            // Another process may have done it while this one waited.
            for from in version(&tx, path)?..VERSION {
                tx.execute_batch(&to(from + 1)).map_err(|e| sql(path, e))?;
            }
            tx.pragma_update(None, "application_id", APPLICATION)
                .and_then(|()| tx.pragma_update(None, "user_version", VERSION))
                .and_then(|()| tx.commit())
                .map_err(|e| sql(path, e))
        };
        step(db)?;
    }
    db.prepare(&format!("SELECT trial_key, {} FROM runs", names()))
        .map(|_| ())
        .map_err(|e| foreign(path, &e.to_string()))
}

/// Version of the tables; 0 in an empty database.
fn version(db: &Connection, path: &Path) -> Result<u32, StoreError> {
    let number = |pragma: &str| {
        db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
            .map_err(|e| sql(path, e))
    };
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = db
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|e| sql(path, e))?;
    match (application, version, tables) {
        (0, 0, 0) => Ok(0),
        (APPLICATION, v, _) if v > i64::from(VERSION) => Err(StoreError::Newer {
            path: path.to_owned(),
            found: v,
            known: VERSION,
        }),
        (APPLICATION, v @ 1.., _) => Ok(u32::try_from(v).unwrap_or(VERSION)),
        (APPLICATION, v, _) => Err(foreign(path, &format!("its schema version is {v}"))),
        _ => Err(foreign(path, "it is a database of another program")),
    }
}

fn foreign(path: &Path, what: &str) -> StoreError {
    StoreError::Foreign {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "TEXT",
        Kind::Real => "REAL",
        Kind::Int | Kind::Bool => "INTEGER",
    }
}

/// What makes a version from the one before.
fn to(version: u32) -> String {
    let new = COLUMNS.iter().filter(|c| c.since == version);
    let columns = new.map(|c| {
        let needed = if c.required { " NOT NULL" } else { "" };
        format!("{} {}{needed}", c.name, sql_type(c.kind))
    });
    if version == 1 {
        let columns: Vec<String> = columns.collect();
        return format!(
            "CREATE TABLE runs (id INTEGER PRIMARY KEY, trial_key TEXT NOT NULL, {}) STRICT;
             CREATE UNIQUE INDEX same_run ON runs ({SAME_RUN});",
            columns.join(", ")
        );
    }
    columns
        .map(|c| format!("ALTER TABLE runs ADD COLUMN {c};"))
        .collect()
}

/// Names of all columns of a run, with commas.
pub fn names() -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    names.join(", ")
}

/// Adds a row unless it is there.
pub fn insert() -> String {
    let marks = vec!["?"; COLUMNS.len() + 1].join(", ");
    format!(
        "INSERT INTO runs (trial_key, {}) VALUES ({marks}) ON CONFLICT ({SAME_RUN}) DO NOTHING",
        names()
    )
}
