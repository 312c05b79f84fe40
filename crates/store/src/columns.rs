//! Columns, and the statements over them. The columns of a table are written once in each database, with the value that a
//! row binds to each and with how the row is read; `statement!` writes the statements when the program is compiled.

/// A column, with the type that PostgreSQL wants its parameter to have.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: &'static str,
}

pub(crate) type Columns = &'static [Column];

/// Of rows that nothing in the log supports.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const MAC: Columns = &[Column { name: "mac", kind: "bytea" }];

/// Something that is written for each column of a list.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
enum Piece {
    Text(&'static str),
    Name,
    Kind,
    /// The table that the column is taken from.
    Table,
    /// The number of its parameter.
    Number,
}

/// A part of a statement: a text, or a list of columns.
pub(crate) struct Part {
    text: &'static str,
    columns: Columns,
    each: &'static [Piece],
    table: &'static str,
    /// The number of the first column's parameter.
    first: usize,
}

const EMPTY: Part = Part { text: "", columns: &[], each: &[], table: "", first: 0 };

pub(crate) const fn text(text: &'static str) -> Part {
    Part { text, ..EMPTY }
}

/// `a, b`
pub(crate) const fn names(columns: Columns) -> Part {
    Part { columns, each: &[Piece::Name], ..EMPTY }
}

/// `t.a, t.b`
pub(crate) const fn names_of(table: &'static str, columns: Columns) -> Part {
    Part { columns, each: &[Piece::Table, Piece::Text("."), Piece::Name], table, ..EMPTY }
}

/// `a = t.a, b = t.b`
pub(crate) const fn sets_from(table: &'static str, columns: Columns) -> Part {
    let each = &[Piece::Name, Piece::Text(" = "), Piece::Table, Piece::Text("."), Piece::Name];
    Part { columns, each, table, ..EMPTY }
}

/// `?1, ?2`
#[cfg(feature = "sqlite")]
pub(crate) const fn marks(columns: Columns, first: usize) -> Part {
    Part { columns, each: &[Piece::Text("?"), Piece::Number], first, ..EMPTY }
}

/// `a = ?1, b = ?2`
#[cfg(feature = "sqlite")]
pub(crate) const fn sets(columns: Columns, first: usize) -> Part {
    Part { columns, each: &[Piece::Name, Piece::Text(" = ?"), Piece::Number], first, ..EMPTY }
}

/// `$1::uuid, $2::text`
#[cfg(feature = "postgres")]
pub(crate) const fn values(columns: Columns, first: usize) -> Part {
    let each = &[Piece::Text("$"), Piece::Number, Piece::Text("::"), Piece::Kind];
    Part { columns, each, first, ..EMPTY }
}

/// `unnest($1::uuid[]), unnest($2::text[])`
#[cfg(feature = "postgres")]
pub(crate) const fn unnested(columns: Columns, first: usize) -> Part {
    let each = &[Piece::Text("unnest($"), Piece::Number, Piece::Text("::"), Piece::Kind, Piece::Text("[])")];
    Part { columns, each, first, ..EMPTY }
}

/// The numbers of so many columns, from this one on.
pub(crate) fn places<const N: usize>(first: usize) -> [usize; N] {
    std::array::from_fn(|column| first + column)
}

/// Writes the parts, as far as there is room, and says how long they are.
pub(crate) const fn write(parts: &[Part], room: &mut [u8]) -> usize {
    let (mut at, mut part) = (0, 0);
    while part < parts.len() {
        let Part { text, columns, each, table, first } = &parts[part];
        at = put(room, at, text);
        let mut column = 0;
        while column < columns.len() {
            if column > 0 {
                at = put(room, at, ", ");
            }
            let mut piece = 0;
            while piece < each.len() {
                at = match each[piece] {
                    Piece::Text(text) => put(room, at, text),
                    Piece::Name => put(room, at, columns[column].name),
                    Piece::Kind => put(room, at, columns[column].kind),
                    Piece::Table => put(room, at, table),
                    Piece::Number => number(room, at, *first + column),
                };
                piece += 1;
            }
            column += 1;
        }
        part += 1;
    }
    at
}

const fn put(room: &mut [u8], at: usize, text: &str) -> usize {
    let text = text.as_bytes();
    let mut byte = 0;
    while byte < text.len() {
        if at + byte < room.len() {
            room[at + byte] = text[byte];
        }
        byte += 1;
    }
    at + text.len()
}

const fn number(room: &mut [u8], at: usize, number: usize) -> usize {
    let at = if number < 10 { at } else { self::number(room, at, number / 10) };
    if at < room.len() {
        room[at] = b'0' + (number % 10) as u8;
    }
    at + 1
}

/// A statement from literals, as [`sql!`](crate::states::sql) takes them, and, in braces, from lists of columns.
macro_rules! statement {
    ($($part:tt)+) => {{
        const PARTS: &[$crate::columns::Part] = &[$($crate::columns::part!($part)),+];
        const LENGTH: usize = $crate::columns::write(PARTS, &mut []);
        const BYTES: [u8; LENGTH] = {
            let mut bytes = [0; LENGTH];
            $crate::columns::write(PARTS, &mut bytes);
            bytes
        };
        const SQL: &str = match ::std::str::from_utf8(&BYTES) {
            Ok(sql) => sql,
            Err(_) => "",
        };
        SQL
    }};
}
pub(crate) use statement;

macro_rules! part {
    ({ $list:expr }) => {
        $list
    };
    ($text:literal) => {
        $crate::columns::text($crate::states::sql!($text))
    };
}
pub(crate) use part;

/// A column. Its name is given where its word here cannot be the same, as that is one of Rust's.
macro_rules! column {
    ($column:ident $(: $kind:literal)?) => {
        $crate::columns::Column { name: stringify!($column), kind: concat!($($kind)?) }
    };
    ($column:ident $name:literal $(: $kind:literal)?) => {
        $crate::columns::Column { name: $name, kind: concat!($($kind)?) }
    };
}
pub(crate) use column;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Columns = &[Column { name: "id", kind: "uuid" }];
    const REST: Columns = &[Column { name: "at", kind: "bigint" }, Column { name: "type", kind: "text" }];

    #[test]
    fn statements_are_written_from_columns() {
        const INSERT: &str = statement!("INSERT INTO t (" { names(ID) } ", " { names(REST) } ")");
        assert_eq!(INSERT, "INSERT INTO t (id, at, type)");
        assert_eq!(statement!("SELECT " { names_of("t", REST) } " FROM t"), "SELECT t.at, t.type FROM t");
        assert_eq!(statement!("SET " { sets_from("v", REST) }), "SET at = v.at, type = v.type");
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn parameters_of_sqlite_are_numbered() {
        assert_eq!(statement!({ marks(REST, 9) }), "?9, ?10");
        assert_eq!(statement!({ sets(REST, 2) } " WHERE id = ?1"), "at = ?2, type = ?3 WHERE id = ?1");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn parameters_of_postgresql_have_types() {
        assert_eq!(statement!({ values(REST, 1) }), "$1::bigint, $2::text");
        assert_eq!(statement!({ unnested(ID, 100) }), "unnest($100::uuid[])");
    }

    #[test]
    fn columns_are_read_by_their_place() {
        let [work, seq] = places(3);
        assert_eq!((work, seq), (3, 4));
    }
}
