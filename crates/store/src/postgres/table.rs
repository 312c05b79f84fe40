//! The columns of PostgreSQL's tables: see [`crate::columns`].

/// A list of columns with their types, with the value that a record binds to each and the way in which the record is
/// read back. The columns that an update may change come last. `each` binds arrays with one element for each of several
/// records, `one` a single record.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $many:ident $vis:vis $table:ident($record:ident: $type:ty)
        { $($column:ident $(as $name:literal)?: $kind:literal = $value:expr),* $(,)? }
        changing { $($changing:ident $(as $new_name:literal)?: $new_kind:literal = $new_value:expr),* $(,)? }
        $($read:tt)*
    ) => {
        table! {
            $(#[$doc])*
            $many $vis $table($record: $type) {
                $($column $(as $name)?: $kind = $value,)*
                $($changing $(as $new_name)?: $new_kind = $new_value),*
            }
            $($read)*
        }

        impl $table {
            /// The columns that an update may change.
            pub const CHANGING: $crate::columns::Columns =
                &[$($crate::columns::column!($changing $($new_name)? : $new_kind)),*];
        }

        table!(@bind $many $table bind_changing $record $type [$(($new_value))*]);
    };
    (
        $(#[$doc:meta])*
        $many:ident $vis:vis $table:ident($record:ident: $type:ty)
        { $($column:ident $(as $name:literal)?: $kind:literal = $value:expr),* $(,)? }
        $($read:tt)*
    ) => {
        $(#[$doc])*
        $vis struct $table;

        impl $table {
            pub const COLUMNS: $crate::columns::Columns =
                &[$($crate::columns::column!($column $($name)? : $kind)),*];
        }

        table!(@bind $many $table bind $record $type [$(($value))*]);
        table!(@read $table [$($column)*] $($read)*);
    };
    (@bind each $table:ident $bind:ident $record:ident $type:ty [$(($value:expr))*]) => {
        impl $table {
            /// Adds an array for each column.
            #[allow(dead_code, reason = "not every table is updated by itself")]
            pub fn $bind<'a>(records: &[&'a $type], params: &mut Vec<$crate::postgres::connection::Param<'a>>) {
                $(
                    let cells = records.iter().copied().map(|$record: &'a $type| $value);
                    params.push(Box::new(cells.collect::<Vec<_>>()));
                )*
            }
        }
    };
    (@bind one $table:ident $bind:ident $record:ident $type:ty [$(($value:expr))*]) => {
        impl $table {
            /// Adds the value of each column.
            pub fn $bind<'a>($record: &'a $type, params: &mut Vec<$crate::postgres::connection::Param<'a>>) {
                $(params.push(Box::new($value));)*
            }
        }
    };
    (@read $table:ident [$($column:ident)*]) => {};
    (
        @read $table:ident [$($column:ident)*]
        read($row:ident $(, $extra:ident: $extra_type:ty)*) -> $type:ty $read:block
    ) => {
        impl $table {
            /// Reads the columns from this one on.
            pub fn read(
                $row: &::tokio_postgres::Row,
                first: usize,
                $($extra: $extra_type),*
            ) -> Result<$type, $crate::Error> {
                let [$($column),*] = $crate::columns::places(first);
                $read
            }
        }
    };
}
pub(super) use table;
