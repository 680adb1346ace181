//! Columns of a record of samples: their order, and the flags that tell which ones are there.

use chronolith_base::{ByteReader, DecodeError};

use super::frame::{put_column, read_column};

/// Column of a record; its number is its place in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Column {
    KeyLens,
    KeyBytes,
    Kinds,
    FieldRefs,
    FieldBytes,
    Counts,
    Times,
    Values,
    TextLens,
    TextBytes,
    Histograms,
    Starts,
    Rows,
    Reorder,
    Exemplars,
    Metadata,
}

/// Number of columns.
const COLUMN_COUNT: usize = 16;

/// Flag: a second value at a timestamp replaces the first one.
pub(super) const FLAG_LAST_WINS: u16 = 1;

/// Column, its name in messages, and the flag of a record that has it; 0 for columns of all records.
const COLUMNS: [(Column, &str, u16); COLUMN_COUNT] = [
    (Column::KeyLens, "lengths of wire keys", 0),
    (Column::KeyBytes, "wire keys", 0),
    (Column::Kinds, "kinds of values", 2),
    (Column::FieldRefs, "references to fields", 4),
    (Column::FieldBytes, "fields", 4),
    (Column::Counts, "sample counts", 8),
    (Column::Times, "times", 16),
    (Column::Values, "values", 0),
    (Column::TextLens, "lengths of texts", 32),
    (Column::TextBytes, "texts", 32),
    (Column::Histograms, "histograms", 64),
    (Column::Starts, "start timestamps", 128),
    (Column::Rows, "rows", 256),
    (Column::Reorder, "reorder rules", 512),
    (Column::Exemplars, "exemplars", 1024),
    (Column::Metadata, "metadata", 2048),
];

const FLAGS_KNOWN: u16 = 4095;

const _: () = {
    let mut idx = 0;
    let mut flags = FLAG_LAST_WINS;
    while idx < COLUMN_COUNT {
        let (column, _, flag) = COLUMNS[idx];
        assert!(column as usize == idx, "columns are in the order of their numbers");
        flags |= flag;
        idx += 1;
    }
    assert!(flags == FLAGS_KNOWN);
};

/// Columns that are being filled; reused from record to record.
#[derive(Debug, Default)]
pub(super) struct ColumnBuffers([Vec<u8>; COLUMN_COUNT]);

impl ColumnBuffers {
    /// Empties all columns.
    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(Vec::clear);
    }

    /// Returns one column.
    pub(super) fn of(&mut self, column: Column) -> &mut Vec<u8> {
        &mut self.0[column as usize]
    }

    /// Bytes of all columns.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Returns the flags of the columns that are not empty.
    pub(super) fn flags(&self) -> u16 {
        let used = COLUMNS.iter().zip(&self.0).filter(|(_, bytes)| !bytes.is_empty());
        used.fold(0, |flags, ((_, _, flag), _)| flags | flag)
    }

    /// Appends the columns that a record with `flags` has.
    pub(super) fn put(&self, flags: u16, out: &mut Vec<u8>) {
        for ((_, _, flag), bytes) in COLUMNS.iter().zip(&self.0) {
            if flags & flag == *flag {
                put_column(bytes, out);
            }
        }
    }
}

/// Readers of the columns of a record; columns that it does not have are empty.
pub(super) struct ColumnReaders<'a> {
    flags: u16,
    columns: [ByteReader<'a>; COLUMN_COUNT],
}

impl<'a> ColumnReaders<'a> {
    /// Reads the lengths of all columns up to the end of `content`, the record before its checksum.
    ///
    /// # Errors
    /// [`DecodeError`] for unknown flags and for columns that do not fill the record.
    pub(super) fn read(
        flags: u16,
        content: &'a [u8],
        reader: &mut ByteReader<'a>,
    ) -> Result<ColumnReaders<'a>, DecodeError> {
        let mut columns = [const { None }; COLUMN_COUNT];
        for ((_, what, flag), column) in COLUMNS.iter().zip(&mut columns) {
            if flags & flag == *flag {
                *column = Some(read_column(what, content, reader)?);
            }
        }
        let columns = columns.map(|column| column.unwrap_or(ByteReader::new(&[])));
        Ok(ColumnReaders { flags, columns })
    }

    /// Returns true if the record has the column.
    pub(super) fn has(&self, column: Column) -> bool {
        let (_, _, flag) = COLUMNS[column as usize];
        self.flags & flag == flag
    }

    /// Returns the reader of one column.
    pub(super) fn of(&mut self, column: Column) -> &mut ByteReader<'a> {
        &mut self.columns[column as usize]
    }

    /// Returns an error if bytes of a column are left.
    pub(super) fn expect_ends(&self) -> Result<(), DecodeError> {
        let mut ends = COLUMNS.iter().zip(&self.columns);
        ends.try_for_each(|((_, what, _), reader)| super::frame::expect_end(reader, what))
    }
}

/// Returns an error if `flags` has bits that no version up to this one sets.
pub(super) fn check_flags(flags: u16) -> Result<(), DecodeError> {
    if flags & !FLAGS_KNOWN == 0 {
        return Ok(());
    }
    Err(super::frame::invalid("record flags", 6, "bits 0 to 11", u64::from(flags)))
}
