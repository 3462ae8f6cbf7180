//! Runs kept on disk: a SQLite database that any number of processes may write, with what goes in and comes out of it.

pub mod columns;
pub mod dataset;
mod files;
pub mod json;
pub mod parquet;
pub mod public;
pub mod quality;
mod schema;

pub use files::{DataError, write_whole};

use super::run::{Origin, Run};
use columns::{COLUMNS, Cell, Kind, RowError};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process waits for another that writes.
const BUSY: Duration = Duration::from_secs(10);

/// A store that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its folder cannot be used.
    #[error("{path}: {source}; name another file with --store")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something else than runs is in the file, which is left as it is.
    #[error(
        "{path} holds no runs of cbtop ({what}); it was not changed: name another file with --store"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// A newer cbtop wrote it.
    #[error(
        "{path} has schema version {found}, this cbtop knows versions up to {known}: use the newer cbtop"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The last one known here.
        known: u32,
    },
    /// The file is cut short or overwritten.
    #[error(
        "{path} is damaged ({what}); it was not changed: restore a copy, or name another file with --store"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Others write all the time.
    #[error("{path} is being written by another process for more than {} s: try again later", BUSY.as_secs())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A run that cannot be kept, or a row that is none.
    #[error("a run cannot be kept: {0}")]
    Row(#[from] RowError),
    /// Anything else that SQLite says.
    #[error("{path}: {source}")]
    Sql {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: rusqlite::Error,
    },
}

/// The smallest page of a database, bytes.
const LEAST_PAGE: u64 = 512;

/// Runs in a file.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens a store, made if there is no file. Two processes may open the same one.
    ///
    /// # Errors
    /// A file that is no store of runs or a newer one, a damaged file, or a folder that cannot be written. None of them is
    /// changed.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io {
            path: path.to_owned(),
            source,
        };
        // An absolute name, because SQLite gives names such as ":memory:" another meaning.
        let absolute = std::path::absolute(path).map_err(io)?;
        match std::fs::metadata(&absolute) {
            // SQLite takes what is shorter than a page for an empty database, and would write over it.
            Ok(m) if m.is_file() && (1..LEAST_PAGE).contains(&m.len()) => {
                return Err(StoreError::Foreign {
                    path: absolute,
                    what: "it is too short to be a database".into(),
                });
            }
            Ok(m) if m.is_file() => {}
            Ok(_) => {
                return Err(StoreError::Foreign {
                    path: absolute,
                    what: "it is no file".into(),
                });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if let Some(folder) = absolute.parent() {
                    std::fs::create_dir_all(folder).map_err(io)?;
                }
            }
            Err(e) => return Err(io(e)),
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&absolute, flags).map_err(|e| sql(&absolute, e))?;
        let mut store = Self { db, path: absolute };
        store.prepare()?;
        Ok(store)
    }

    fn prepare(&mut self) -> Result<(), StoreError> {
        self.db.busy_timeout(BUSY).map_err(|e| self.sql(e))?;
        schema::migrate(&mut self.db, &self.path)?;
        // FULL, so that what is committed outlives a loss of power as well as a killed process.
        let sync = self.db.pragma_update(None, "synchronous", "FULL");
        sync.map_err(|e| self.sql(e))?;
        self.write_ahead()
    }

    /// Turns on write-ahead logging. Two processes that do so at once are not made to wait by SQLite's own timeout.
    fn write_ahead(&self) -> Result<(), StoreError> {
        let pause = Duration::from_millis(20);
        let mut tries = BUSY.as_millis() / pause.as_millis();
        loop {
            let mode = self.db.pragma_update(None, "journal_mode", "WAL");
            match mode.map_err(|e| self.sql(e)) {
                Err(StoreError::Busy { .. }) if tries > 0 => std::thread::sleep(pause),
                other => return other,
            }
            tries -= 1;
        }
    }

    /// Where runs are kept unless a file is named: `$CBTOP_RUNS`, else `cbtop/runs.sqlite` in `$XDG_DATA_HOME` or
    /// `~/.local/share`. `None` without any of them.
    pub fn default_path() -> Option<PathBuf> {
        default_path(|name| std::env::var_os(name).map(PathBuf::from))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a run: once this returns, it is on disk. A run that is there already, the same in trial, origin, source, time
    /// and rate, is not added again.
    ///
    /// # Errors
    /// A run with numbers that are none, or a file that cannot be written.
    pub fn insert(&mut self, run: &Run) -> Result<(), StoreError> {
        self.insert_all(std::slice::from_ref(run)).map(|_| ())
    }

    /// Keeps runs, all or none, and says how many were not there before.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn insert_all(&mut self, runs: &[Run]) -> Result<usize, StoreError> {
        for run in runs {
            columns::check(run)?;
        }
        let path = self.path.clone();
        let insert = |db: &mut Connection| -> rusqlite::Result<usize> {
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut added = 0;
            {
                let mut statement = tx.prepare_cached(&schema::insert())?;
                for run in runs {
                    let values = columns::cells(run).into_iter().map(value);
                    let key = Value::Text(run.trial.key());
                    let row = std::iter::once(key).chain(values);
                    added += statement.execute(rusqlite::params_from_iter(row))?;
                }
            }
            tx.commit()?;
            Ok(added)
        };
        insert(&mut self.db).map_err(|e| sql(&path, e))
    }

    /// Whether a trial ([`super::run::Trial::key`]) of an origin is there.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn contains(&self, trial_key: &str, origin: Origin) -> Result<bool, StoreError> {
        let query = "SELECT EXISTS (SELECT 1 FROM runs WHERE trial_key = ?1 AND origin = ?2)";
        let found = self.db.prepare_cached(query).and_then(|mut statement| {
            statement.query_row((trial_key, origin.name()), |row| row.get(0))
        });
        found.map_err(|e| self.sql(e))
    }

    /// Runs kept.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn count(&self) -> Result<u64, StoreError> {
        let count = self
            .db
            .query_row("SELECT count(*) FROM runs", [], |row| row.get::<_, i64>(0));
        let count = count.map_err(|e| self.sql(e))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// All runs, in the order in which they were kept.
    ///
    /// # Errors
    /// A file that cannot be read, or a row that is no run.
    pub fn runs(&self) -> Result<Vec<Run>, StoreError> {
        self.select("ORDER BY id", 0)
    }

    /// The last `limit` runs, the newest first.
    ///
    /// # Errors
    /// As [`Self::runs`].
    pub fn newest(&self, limit: u32) -> Result<Vec<Run>, StoreError> {
        self.select("ORDER BY id DESC LIMIT ?1", limit)
    }

    fn select(&self, tail: &str, limit: u32) -> Result<Vec<Run>, StoreError> {
        let query = format!("SELECT {} FROM runs {tail}", schema::names());
        let mut statement = self.db.prepare(&query).map_err(|e| self.sql(e))?;
        let rows = match statement.parameter_count() {
            0 => statement.query([]),
            _ => statement.query([limit]),
        };
        let mut rows = rows.map_err(|e| self.sql(e))?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.sql(e))? {
            let mut cells = Vec::with_capacity(COLUMNS.len());
            for (i, column) in COLUMNS.iter().enumerate() {
                let value = row.get_ref(i).map_err(|e| self.sql(e))?;
                cells.push(cell(value, column.kind));
            }
            // Rows are checked before they are kept.
            runs.push(columns::run(cells).map_err(|e| StoreError::Damaged {
                path: self.path.clone(),
                what: e.to_string(),
            })?);
        }
        Ok(runs)
    }

    fn sql(&self, e: rusqlite::Error) -> StoreError {
        sql(&self.path, e)
    }
}

fn default_path(var: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let named = |name| var(name).filter(|p| !p.as_os_str().is_empty());
    let data = || {
        named("XDG_DATA_HOME")
            .filter(|p| p.is_absolute())
            .or_else(|| Some(named("HOME")?.join(".local/share")))
    };
    named("CBTOP_RUNS").or_else(|| Some(data()?.join("cbtop/runs.sqlite")))
}

fn sql(path: &Path, e: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match e.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::Foreign {
            path,
            what: "it is no SQLite database".into(),
        },
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged {
            path,
            what: e.to_string(),
        },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy { path },
        _ => StoreError::Sql { path, source: e },
    }
}

fn value(cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Text(text) => Value::Text(text),
        Cell::Real(x) => Value::Real(x),
        Cell::Int(n) => Value::Integer(n),
        Cell::Bool(b) => Value::Integer(i64::from(b)),
    }
}

/// A value of the database; what does not fit its column is left for [`columns::run`] to name.
fn cell(value: ValueRef<'_>, kind: Kind) -> Cell {
    match (value, kind) {
        (ValueRef::Null, _) => Cell::Null,
        (ValueRef::Integer(n @ (0 | 1)), Kind::Bool) => Cell::Bool(n == 1),
        (ValueRef::Integer(n), _) => Cell::Int(n),
        (ValueRef::Real(x), _) => Cell::Real(x),
        (ValueRef::Text(bytes) | ValueRef::Blob(bytes), _) => {
            Cell::Text(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod tests;
