//! Runs as Parquet, a column each under the names of [`COLUMNS`], which DuckDB, Spark and others read as they are.
//!
//! Files that others wrote are read too: columns are found by name in any order, 32-bit numbers are taken for 64-bit ones,
//! columns that are not ours are left out.

use super::columns::{self, COLUMNS, Cell, Column, Kind};
use super::files::{DataError, write_whole};
use crate::tuner::run::Run;
use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Rows of a group written here.
const GROUP_ROWS: usize = 16 * 1024;
/// Rows decoded at once.
const BATCH_ROWS: usize = 1024;
/// Most rows of a file.
const MAX_ROWS: usize = 5_000_000;
/// Largest file, bytes.
const MAX_BYTES: u64 = 4 << 30;

/// The schema in Parquet's own words.
fn message() -> String {
    let column = |c: &Column| {
        let needed = if c.required { "REQUIRED" } else { "OPTIONAL" };
        match c.kind {
            Kind::Text => format!("{needed} BYTE_ARRAY {} (STRING);", c.name),
            Kind::Real => format!("{needed} DOUBLE {};", c.name),
            Kind::Int => format!("{needed} INT64 {};", c.name),
            Kind::Bool => format!("{needed} BOOLEAN {};", c.name),
        }
    };
    let columns: String = COLUMNS.iter().map(column).collect();
    format!("message run {{ {columns} }}")
}

/// Writes a file of runs.
///
/// # Errors
/// A run that may not be kept, or a file that cannot be written.
pub fn write(path: &Path, runs: &[Run]) -> Result<(), DataError> {
    check(path, runs)?;
    write_whole(path, |out| encode(out, runs).map_err(std::io::Error::other))
        .map_err(DataError::io(path))
}

/// The bytes of a file of runs, the same for the same runs.
///
/// # Errors
/// A run that may not be kept; `path` is for messages.
pub fn to_bytes(path: &Path, runs: &[Run]) -> Result<Vec<u8>, DataError> {
    check(path, runs)?;
    let mut bytes = Vec::new();
    encode(&mut bytes, runs).map_err(|e| DataError::format(path, e.to_string()))?;
    Ok(bytes)
}

fn check(path: &Path, runs: &[Run]) -> Result<(), DataError> {
    for (row, run) in (1..).zip(runs) {
        columns::check(run).map_err(|source| DataError::Row {
            path: path.to_owned(),
            row,
            source,
        })?;
    }
    Ok(())
}

/// Writes runs without looking at what is in them.
pub(super) fn encode(out: &mut (impl Write + Send), runs: &[Run]) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(&message())?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        // Pages have no statistics of their own: a machine's file is one page a column.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .build();
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    for group in runs.chunks(GROUP_ROWS) {
        let mut columns: Vec<Vec<Cell>> = vec![Vec::with_capacity(group.len()); COLUMNS.len()];
        for run in group {
            for (column, cell) in columns.iter_mut().zip(columns::cells(run)) {
                column.push(cell);
            }
        }
        let mut rows = writer.next_row_group()?;
        for (column, cells) in COLUMNS.iter().zip(&columns) {
            match column.kind {
                Kind::Text => put::<ByteArrayType, _>(&mut rows, column, cells, |c| match c {
                    Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                    _ => None,
                }),
                Kind::Real => put::<DoubleType, _>(&mut rows, column, cells, |c| match c {
                    Cell::Real(x) => Some(*x),
                    _ => None,
                }),
                Kind::Int => put::<Int64Type, _>(&mut rows, column, cells, |c| match c {
                    Cell::Int(n) => Some(*n),
                    _ => None,
                }),
                Kind::Bool => put::<BoolType, _>(&mut rows, column, cells, |c| match c {
                    Cell::Bool(b) => Some(*b),
                    _ => None,
                }),
            }?;
        }
        rows.close()?;
    }
    writer.close().map(|_| ())
}

fn put<T: DataType, W: Write + Send>(
    rows: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    cells: &[Cell],
    value: impl Fn(&Cell) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = cells.iter().map(value).collect();
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    let Some(mut writer) = rows.next_column()? else {
        return Err(ParquetError::General(format!("no column {}", column.name)));
    };
    let levels = (!column.required).then_some(levels.as_slice());
    writer.typed::<T>().write_batch(&values, levels, None)?;
    writer.close()
}

/// Reads a file of runs.
///
/// # Errors
/// A file that is not Parquet or damaged, lacks a column or has it in another type, or a row that is no run.
pub fn read(path: &Path) -> Result<Vec<Run>, DataError> {
    let file = File::open(path).map_err(DataError::io(path))?;
    let meta = file.metadata().map_err(DataError::io(path))?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        let what = format!("no file of at most {} GiB", MAX_BYTES >> 30);
        return Err(DataError::format(path, what));
    }
    let damaged = |e: ParquetError| DataError::format(path, format!("not a Parquet file: {e}"));
    // The decoder checks most of what it reads, but not all: a damaged file may make it panic.
    let read = std::panic::catch_unwind(|| {
        let reader = SerializedFileReader::new(file).map_err(damaged)?;
        read_groups(&reader, path)
    });
    read.unwrap_or_else(|_| Err(DataError::format(path, "a damaged Parquet file")))
}

fn read_groups(reader: &SerializedFileReader<File>, path: &Path) -> Result<Vec<Run>, DataError> {
    let damaged = |e: ParquetError| DataError::format(path, format!("damaged: {e}"));
    let places = places(reader, path)?;
    let mut runs = Vec::new();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(damaged)?;
        read_group(group.as_ref(), &places, path, &mut runs)?;
    }
    Ok(runs)
}

/// Which of the file's columns is which of ours.
fn places(
    reader: &SerializedFileReader<File>,
    path: &Path,
) -> Result<Vec<Option<usize>>, DataError> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let wrong =
        |name: &str, what: String| Err(DataError::format(path, format!("column {name}: {what}")));
    let mut places = Vec::with_capacity(COLUMNS.len());
    for column in COLUMNS {
        let mut found = schema
            .columns()
            .iter()
            .enumerate()
            .filter(|(_, c)| c.path().parts().first().map(String::as_str) == Some(column.name));
        let place = found.next();
        if found.next().is_some() {
            return wrong(column.name, "is there more than once".into());
        }
        let Some((at, there)) = place else {
            if column.required {
                return wrong(column.name, "is missing: this is no file of runs".into());
            }
            places.push(None);
            continue;
        };
        use parquet::basic::Type;
        let fits = matches!(
            (column.kind, there.physical_type()),
            (Kind::Text, Type::BYTE_ARRAY)
                | (Kind::Real, Type::DOUBLE | Type::FLOAT)
                | (Kind::Int, Type::INT64 | Type::INT32)
                | (Kind::Bool, Type::BOOLEAN)
        );
        if !fits {
            let type_ = there.physical_type();
            return wrong(
                column.name,
                format!("is {type_}, not {}", column.kind.name()),
            );
        }
        if there.max_rep_level() > 0 || there.max_def_level() > 1 {
            return wrong(column.name, "is nested, not one value a row".into());
        }
        places.push(Some(at));
    }
    Ok(places)
}

fn read_group(
    group: &dyn RowGroupReader,
    places: &[Option<usize>],
    path: &Path,
    runs: &mut Vec<Run>,
) -> Result<(), DataError> {
    let damaged = |e: ParquetError| DataError::format(path, format!("damaged: {e}"));
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
    if rows.saturating_add(runs.len()) > MAX_ROWS {
        let what = format!("more than {MAX_ROWS} rows; split it");
        return Err(DataError::format(path, what));
    }
    let mut columns = Vec::with_capacity(places.len());
    for place in places {
        columns.push(match place {
            None => None,
            Some(at) => {
                let optional = group.metadata().column(*at).column_descr().max_def_level() > 0;
                Some((group.get_column_reader(*at).map_err(damaged)?, optional))
            }
        });
    }
    let mut left = rows;
    while left > 0 {
        let batch = left.min(BATCH_ROWS);
        let mut cells = Vec::with_capacity(columns.len());
        for (column, reader) in COLUMNS.iter().zip(&mut columns) {
            let read = match reader {
                None => Ok(vec![Cell::Null; batch]),
                Some((reader, optional)) => take_any(reader, batch, *optional, column.most_bytes()),
            };
            let read =
                read.map_err(|e| DataError::format(path, format!("column {}: {e}", column.name)))?;
            cells.push(read.into_iter());
        }
        for _ in 0..batch {
            let row = cells.iter_mut().map(|c| c.next().unwrap_or(Cell::Null));
            let run = columns::run(row.collect()).map_err(|source| DataError::Row {
                path: path.to_owned(),
                row: runs.len() as u64 + 1,
                source,
            })?;
            runs.push(run);
        }
        left -= batch;
    }
    Ok(())
}

fn take_any(
    reader: &mut ColumnReader,
    rows: usize,
    optional: bool,
    most_bytes: usize,
) -> Result<Vec<Cell>, ParquetError> {
    match reader {
        ColumnReader::BoolColumnReader(r) => take(r, rows, optional, |b| Ok(Cell::Bool(b))),
        ColumnReader::Int32ColumnReader(r) => {
            take(r, rows, optional, |n| Ok(Cell::Int(i64::from(n))))
        }
        ColumnReader::Int64ColumnReader(r) => take(r, rows, optional, |n| Ok(Cell::Int(n))),
        ColumnReader::FloatColumnReader(r) => {
            take(r, rows, optional, |x| Ok(Cell::Real(f64::from(x))))
        }
        ColumnReader::DoubleColumnReader(r) => take(r, rows, optional, |x| Ok(Cell::Real(x))),
        ColumnReader::ByteArrayColumnReader(r) => take(r, rows, optional, |bytes| {
            // A value of a dictionary may stand in every row: it is not copied before it is known to be short.
            match bytes.len() {
                n if n > most_bytes => Err(ParquetError::General(columns::too_long(n, most_bytes))),
                _ => Ok(Cell::Text(bytes.as_utf8()?.to_owned())),
            }
        }),
        _ => Err(ParquetError::General("of a type that is not read".into())),
    }
}

/// `rows` values of a column, an empty cell where there is none.
fn take<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    optional: bool,
    cell: impl Fn(T::T) -> Result<Cell, ParquetError>,
) -> Result<Vec<Cell>, ParquetError> {
    let short = || ParquetError::General("has fewer values than the file has rows".into());
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut got = 0;
    while got < rows {
        let wants = optional.then_some(&mut levels);
        let (records, _, _) = reader.read_records(rows - got, wants, None, &mut values)?;
        if records == 0 {
            return Err(short());
        }
        got += records;
    }
    let mut values = values.into_iter();
    let mut next = || values.next().ok_or_else(short).and_then(&cell);
    if !optional {
        return (0..rows).map(|_| next()).collect();
    }
    let one = |level: &i16| match level {
        0 => Ok(Cell::Null),
        _ => next(),
    };
    levels.iter().take(rows).map(one).collect()
}
