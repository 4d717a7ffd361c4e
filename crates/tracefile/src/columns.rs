//! Tables as Parquet files: columns of numbers and texts, in and out.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Repetition, Type, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type as SchemaType};

use crate::error::TraceFileError;
use crate::row::{COLUMNS, EventColumn, TraceRow};

/// Rows of one group that are read at most: a group of a foreign file may name any number.
const ROWS_MAX: usize = 4 << 20;

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Narrow,
    Wide,
    Text,
}

/// The values of a column of texts or numbers, with its name.
pub(crate) struct TableColumn {
    pub(crate) name: &'static str,
    pub(crate) values: ColumnValues,
}

/// The values of a column; `None` where there is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ColumnValues {
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
}

fn field(name: &str, kind: ColumnKind, is_optional: bool) -> Result<Arc<SchemaType>, ParquetError> {
    let physical = match kind {
        ColumnKind::Narrow => Type::INT32,
        ColumnKind::Wide => Type::INT64,
        ColumnKind::Text => Type::BYTE_ARRAY,
    };
    let repetition = if is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let mut field = SchemaType::primitive_type_builder(name, physical).with_repetition(repetition);
    if kind == ColumnKind::Text {
        field = field.with_logical_type(Some(parquet::basic::LogicalType::String));
    }
    Ok(Arc::new(field.build()?))
}

/// Lets `write` fill a file that gets its name when it is whole.
fn write_whole(
    path: &Path,
    mode: u32,
    write: impl FnOnce(File) -> Result<(), ParquetError>,
) -> Result<(), TraceFileError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(TraceFileError::system("replace", &partial)(error));
        }
        _ => {}
    }
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial);
    write(opened.map_err(TraceFileError::system("create", &partial))?).map_err(|error| match error {
        ParquetError::External(error) => TraceFileError::bad(path, error),
        error => TraceFileError::bad(path, error),
    })?;
    std::fs::rename(&partial, path).map_err(TraceFileError::system("rename", &partial))
}

/// Writes rows, sorted by their start, as one file of events.
pub(crate) fn write_events(path: &Path, rows: &[TraceRow]) -> Result<(), TraceFileError> {
    write_whole(path, 0o666, |file| {
        let fields = COLUMNS.iter().map(|column| {
            field(column.name, if column.is_narrow { ColumnKind::Narrow } else { ColumnKind::Wide }, column.is_optional)
        });
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let schema = SchemaType::group_type_builder("events").with_fields(fields).build()?;
        let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?));
        for column in COLUMNS.iter().filter(|column| column.is_growing) {
            let path = ColumnPath::from(column.name);
            properties = properties.set_column_dictionary_enabled(path.clone(), false);
            properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()))?;
        let mut group = writer.next_row_group()?;
        for column in &COLUMNS {
            let values: Vec<Option<i64>> = rows.iter().map(column.get).collect();
            write_numbers(&mut group, &values, column.is_narrow, column.is_optional)?;
        }
        group.close()?;
        writer.close().map(drop)
    })
}

fn write_numbers(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[Option<i64>],
    is_narrow: bool,
    is_optional: bool,
) -> Result<(), ParquetError> {
    let present = || values.iter().filter_map(|value| *value);
    match is_narrow {
        // A count of calls or an unknown number beyond 31 bits keeps its bits.
        true => write_column::<Int32Type>(group, present().map(|value| value as i32).collect(), values, is_optional),
        false => write_column::<Int64Type>(group, present().collect(), values, is_optional),
    }
}

fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    present: Vec<T::T>,
    all: &[Option<impl Sized>],
    is_optional: bool,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("a column too many".to_owned()))?;
    column.typed::<T>().write_batch(&present, is_optional.then_some(&levels), None)?;
    column.close()
}

/// Writes a table whose columns may all be unknown, with this mode.
pub(crate) fn write_table(path: &Path, mode: u32, columns: &[TableColumn]) -> Result<(), TraceFileError> {
    write_whole(path, mode, |file| {
        let fields = columns.iter().map(|column| match column.values {
            ColumnValues::Numbers(_) => field(column.name, ColumnKind::Wide, true),
            ColumnValues::Texts(_) => field(column.name, ColumnKind::Text, true),
        });
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let schema = SchemaType::group_type_builder("table").with_fields(fields).build()?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?));
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()))?;
        let mut group = writer.next_row_group()?;
        for column in columns {
            match &column.values {
                ColumnValues::Numbers(values) => write_numbers(&mut group, values, false, true)?,
                ColumnValues::Texts(values) => {
                    let texts = values.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
                    write_column::<ByteArrayType>(&mut group, texts, values, true)?;
                }
            }
        }
        group.close()?;
        writer.close().map(drop)
    })
}

/// A file of events.
pub(crate) struct EventsFile {
    reader: SerializedFileReader<File>,
    path: std::path::PathBuf,
    /// For each column of [`COLUMNS`]: its place in the file; `None` if the file lacks an optional one.
    places: Vec<Option<usize>>,
}

impl EventsFile {
    /// # Errors
    /// `Bad` for what is no Parquet, is cut, or lacks a column; `System`.
    pub(crate) fn open(path: &Path) -> Result<EventsFile, TraceFileError> {
        let reader = open(path)?;
        let places = COLUMNS.iter().map(|column| column.place(&reader, path)).collect::<Result<_, _>>()?;
        Ok(EventsFile { reader, path: path.to_owned(), places })
    }

    /// Number of row groups.
    pub(crate) fn group_count(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Reads the rows of a group.
    pub(crate) fn read(&self, number: usize) -> Result<Vec<TraceRow>, TraceFileError> {
        let bad = |error| TraceFileError::bad(&self.path, error);
        let group = self.reader.get_row_group(number).map_err(|error| bad(error.to_string()))?;
        let count = rows_of(group.as_ref()).map_err(bad)?;
        let empty = TraceRow::new(0, frieze_trace::CallKind::Other, frieze_trace::Gateway::Library);
        let mut rows = vec![empty; count];
        for (column, place) in COLUMNS.iter().zip(&self.places) {
            let Some(place) = place else { continue };
            let values = read_numbers(group.as_ref(), *place, count);
            let values = values.map_err(|error| bad(format!("column {}: {error}", column.name)))?;
            for (at, (row, value)) in rows.iter_mut().zip(values).enumerate() {
                (column.set)(row, value).ok_or_else(|| {
                    bad(format!("column {}, row {at} of group {number}: {value:?} is no value of it", column.name))
                })?;
            }
        }
        Ok(rows)
    }
}

impl EventColumn {
    fn place(&self, reader: &SerializedFileReader<File>, path: &Path) -> Result<Option<usize>, TraceFileError> {
        let wanted = if self.is_narrow { Type::INT32 } else { Type::INT64 };
        let columns = reader.metadata().file_metadata().schema_descr().columns();
        match columns.iter().position(|column| column.name() == self.name) {
            None if self.is_optional => Ok(None),
            None => Err(TraceFileError::bad(path, format!("it has no column {}", self.name))),
            Some(place) if columns[place].physical_type() == wanted && columns[place].max_rep_level() == 0 => {
                Ok(Some(place))
            }
            Some(place) => {
                let why = format!("column {} is {}, not {wanted}", self.name, columns[place].physical_type());
                Err(TraceFileError::bad(path, why))
            }
        }
    }
}

fn open(path: &Path) -> Result<SerializedFileReader<File>, TraceFileError> {
    let file = File::open(path).map_err(TraceFileError::system("open", path))?;
    SerializedFileReader::new(file)
        .map_err(|error| TraceFileError::bad(path, format!("it is cut or no Parquet: {error}")))
}

fn rows_of(group: &dyn RowGroupReader) -> Result<usize, String> {
    let count = usize::try_from(group.metadata().num_rows()).map_err(|_| "a group has a negative size".to_owned())?;
    match count <= ROWS_MAX {
        true => Ok(count),
        false => Err(format!("a group has {count} rows, and at most {ROWS_MAX}")),
    }
}

fn read_numbers(group: &dyn RowGroupReader, place: usize, count: usize) -> Result<Vec<Option<i64>>, String> {
    match group.get_column_reader(place).map_err(|error| error.to_string())? {
        ColumnReader::Int32ColumnReader(mut reader) => {
            Ok(read_values(&mut reader, count)?.into_iter().map(|value| value.map(i64::from)).collect())
        }
        ColumnReader::Int64ColumnReader(mut reader) => read_values(&mut reader, count),
        _ => Err("it has no numbers".to_owned()),
    }
}

fn read_values<T: DataType>(reader: &mut ColumnReaderImpl<T>, count: usize) -> Result<Vec<Option<T::T>>, String> {
    let (mut values, mut levels) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut done = 0;
    while done < count {
        let (rows, ..) = reader
            .read_records(count - done, Some(&mut levels), None, &mut values)
            .map_err(|error| error.to_string())?;
        if rows == 0 {
            return Err(format!("it ends after {done} of {count} rows"));
        }
        done += rows;
    }
    if levels.is_empty() {
        // The column is never unknown.
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    let all: Vec<Option<T::T>> = levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect();
    match all.len() == count {
        true => Ok(all),
        false => Err(format!("it has {} values for {count} rows", all.len())),
    }
}

/// Reads columns of a table by name.
///
/// # Errors
/// `Bad` for what is no Parquet, is cut, or lacks a column; `System`.
pub(crate) fn read_table(path: &Path, wanted: &[(&str, ColumnKind)]) -> Result<Vec<ColumnValues>, TraceFileError> {
    let reader = open(path)?;
    let bad = |error: String| TraceFileError::bad(path, error);
    let mut all: Vec<ColumnValues> = wanted
        .iter()
        .map(|(_, kind)| match kind {
            ColumnKind::Text => ColumnValues::Texts(Vec::new()),
            _ => ColumnValues::Numbers(Vec::new()),
        })
        .collect();
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number).map_err(|error| bad(error.to_string()))?;
        let count = rows_of(group.as_ref()).map_err(bad)?;
        for ((name, _), values) in wanted.iter().zip(&mut all) {
            let columns = reader.metadata().file_metadata().schema_descr().columns();
            let place = columns.iter().position(|column| column.name() == *name);
            let place = place.ok_or_else(|| bad(format!("it has no column {name}")))?;
            let failed = |error: String| bad(format!("column {name}: {error}"));
            match values {
                ColumnValues::Numbers(values) => {
                    values.extend(read_numbers(group.as_ref(), place, count).map_err(failed)?);
                }
                ColumnValues::Texts(values) => {
                    let column = group.get_column_reader(place).map_err(|error| failed(error.to_string()))?;
                    let ColumnReader::ByteArrayColumnReader(mut reader) = column else {
                        return Err(failed("it has no texts".to_owned()));
                    };
                    let read = read_values(&mut reader, count).map_err(failed)?;
                    let text = |bytes: ByteArray| String::from_utf8_lossy(bytes.data()).into_owned();
                    values.extend(read.into_iter().map(|value| value.map(text)));
                }
            }
        }
    }
    Ok(all)
}
