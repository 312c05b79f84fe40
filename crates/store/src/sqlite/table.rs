//! The columns of SQLite's tables: see [`crate::columns`].

/// A list of columns, with the value that a record binds to each and the way in which the record is read back. The
/// columns that an update may change come last.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $vis:vis $table:ident($record:ident: $type:ty)
        { $($column:ident $(as $name:literal)? = $value:expr),* $(,)? }
        changing { $($changing:ident $(as $new_name:literal)? = $new_value:expr),* $(,)? }
        $($read:tt)*
    ) => {
        table! {
            $(#[$doc])*
            $vis $table($record: $type) {
                $($column $(as $name)? = $value,)*
                $($changing $(as $new_name)? = $new_value),*
            }
            $($read)*
        }

        impl $table {
            /// The columns that an update may change.
            pub const CHANGING: $crate::columns::Columns =
                &[$($crate::columns::column!($changing $($new_name)?)),*];
        }

        table!(@bind $table bind_changing $record $type [$(($new_value))*]);
    };
    (
        $(#[$doc:meta])*
        $vis:vis $table:ident($record:ident: $type:ty)
        { $($column:ident $(as $name:literal)? = $value:expr),* $(,)? }
        $($read:tt)*
    ) => {
        $(#[$doc])*
        $vis struct $table;

        impl $table {
            pub const COLUMNS: $crate::columns::Columns =
                &[$($crate::columns::column!($column $($name)?)),*];
        }

        table!(@bind $table bind $record $type [$(($value))*]);
        table!(@read $table [$($column)*] $($read)*);
    };
    (@bind $table:ident $bind:ident $record:ident $type:ty [$(($value:expr))*]) => {
        impl $table {
            /// Binds the columns from this parameter on, and returns the number of the next one.
            #[allow(dead_code, reason = "not every table is updated by itself")]
            pub fn $bind(
                statement: &mut ::rusqlite::Statement<'_>,
                first: usize,
                $record: $type,
            ) -> $crate::sqlite::row::Read<usize> {
                let mut at = first;
                $(
                    statement.raw_bind_parameter(at, &$value)?;
                    at += 1;
                )*
                Ok(at)
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
                $row: &::rusqlite::Row<'_>,
                first: usize,
                $($extra: $extra_type),*
            ) -> $crate::sqlite::row::Read<$type> {
                let [$($column),*] = $crate::columns::places(first);
                $read
            }
        }
    };
}
pub(super) use table;
