//! The column of each parameter of a ledger's statement, read from the statement itself, so that raw follows
//! changes of the tables.

use super::marks::Moving;
use crate::Result;

/// Column names in the order of the parameters.
#[derive(Debug)]
pub struct Columns(pub Vec<String>);

impl Columns {
    /// The names after an opening, up to the closing bracket: `INSERT INTO event (a, b) …`.
    pub fn listed(sql: &str, opening: &str) -> Result<Columns> {
        let rest = sql.split_once(opening).map(|(_, rest)| rest);
        let names = rest.and_then(|rest| rest.split_once(')')).map(|(names, _)| names);
        let names = names.ok_or_else(|| format!("no `{opening}` with names in: {sql}"))?;
        Ok(Columns(names.split(',').map(|name| name.trim().to_owned()).collect()))
    }

    /// The names of `SET b = ?2, c = ?3 WHERE a = ?1`.
    pub fn assigned(sql: &str) -> Result<Columns> {
        let (_, sql) = sql.split_once(" SET ").ok_or("no SET in an update")?;
        let (set, key) = sql.split_once(" WHERE ").ok_or("no WHERE in an update")?;
        let mut columns = Vec::new();
        for pair in set.split(',').chain([key]) {
            let (name, number) = pair.split_once("= ?").ok_or_else(|| format!("`{pair}` binds nothing"))?;
            columns.push((number.trim().parse::<usize>()?, name.trim().to_owned()));
        }
        columns.sort();
        Ok(Columns(columns.into_iter().map(|(_, name)| name).collect()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Event,
    Work,
    Command,
    /// The narrow second table of commands, if the database has one.
    CommandStatus,
}

impl Table {
    pub fn name(self) -> &'static str {
        match self {
            Table::Event => "event",
            Table::Work => "work",
            Table::Command => "command",
            Table::CommandStatus => "command_status",
        }
    }

    /// The columns that differ from one transition to the next. Not every statement has all of them.
    fn moving(self) -> &'static [(&'static str, Moving)] {
        use Moving::{At, Command, CommandKey, Event, Head, PrevHash, Previous, Seq, Txn};
        match self {
            Table::Event => &[
                ("seq", Seq),
                ("at", At),
                ("txn", Txn),
                ("prev_hash", PrevHash),
                ("hash", Head),
                ("previous", Previous),
            ],
            Table::Work => &[("seq", Seq), ("updated_at", At), ("head", Head), ("last_event", Event)],
            Table::Command => &[
                ("id", Command),
                ("key", CommandKey),
                ("seq", Seq),
                ("created_at", At),
                ("updated_at", At),
                ("last_event", Event),
            ],
            Table::CommandStatus => &[("command", Command)],
        }
    }
}

/// One of the ledger's statements: the columns of its parameters, and the ones that change.
#[derive(Debug)]
pub struct Shape {
    pub table: Table,
    pub sql: &'static str,
    pub columns: Columns,
    pub moving: Vec<(usize, Moving)>,
}

impl Shape {
    pub fn new(table: Table, sql: &'static str, columns: Columns) -> Shape {
        let place = |(name, moving): &(&str, Moving)| {
            let place = columns.0.iter().position(|column| column == name)?;
            Some((place, *moving))
        };
        let moving = table.moving().iter().filter_map(place).collect();
        Shape { table, sql, columns, moving }
    }

    /// An insert that lists its columns.
    pub fn insert(table: Table, sql: &'static str) -> Result<Shape> {
        Ok(Shape::new(table, sql, Columns::listed(sql, &format!("INTO {} (", table.name()))?))
    }
}

/// Reads the values that the ledger bound in the last transition of each work item, in the order of creation.
/// The item's position in its log comes first: `seq`, `updated_at`, `head`. `last` selects a work item's last
/// event.
pub fn read_back(shapes: &[Shape], last: &str) -> String {
    let columns = shapes
        .iter()
        .flat_map(|shape| shape.columns.0.iter().map(|column| format!(", {}.{column}", shape.table.name())));
    let columns: String = columns.collect();
    let joined = [
        (Table::Command, " JOIN command ON command.work = work.id AND command.seq = work.seq"),
        (Table::CommandStatus, " JOIN command_status ON command_status.command = command.id"),
    ];
    let wanted = |(table, _): &&(Table, &str)| shapes.iter().any(|shape| shape.table == *table);
    let joins: String = joined.iter().filter(wanted).map(|(_, join)| *join).collect();
    format!(
        "SELECT work.seq, work.updated_at, work.head{columns} FROM work \
         JOIN event ON {last}{joins} ORDER BY work.id"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_from_the_statements() {
        let insert = Columns::listed("INSERT INTO t (a, b) VALUES (?1, ?2)", "INTO t (").unwrap();
        assert_eq!(insert.0, ["a", "b"]);
        let update = Columns::assigned("UPDATE t SET b = ?2, c = ?3 WHERE a = ?1").unwrap();
        assert_eq!(update.0, ["a", "b", "c"]);
        assert!(Columns::assigned("UPDATE t SET b = b + 1 WHERE a = ?1").is_err());
        assert!(Columns::listed("UPDATE t SET a = 1", "INTO t (").is_err());
    }

    #[test]
    fn a_shape_knows_what_moves_and_where_it_is_read() {
        let event = Shape::insert(Table::Event, "INSERT INTO event (work, seq, hash) VALUES").unwrap();
        assert_eq!(event.moving, [(1, Moving::Seq), (2, Moving::Head)]);
        let sql = read_back(&[event], "event.work = work.id");
        assert!(sql.contains("work.head, event.work, event.seq, event.hash FROM work JOIN event"), "{sql}");
        assert!(!sql.contains("JOIN command"), "{sql}");
        let command = Shape::insert(Table::Command, "INSERT INTO command (id) VALUES").unwrap();
        let twin =
            Shape::insert(Table::CommandStatus, "INSERT INTO command_status (command) VALUES").unwrap();
        let sql = read_back(&[command], "TRUE");
        assert!(sql.contains("JOIN command ON") && !sql.contains("JOIN command_status"), "{sql}");
        let command = Shape::insert(Table::Command, "INSERT INTO command (id) VALUES").unwrap();
        assert!(read_back(&[command, twin], "TRUE").contains("seq JOIN command_status ON"));
    }
}
