//! Which column each parameter of a ledger's statement is for, read from the statement itself: raw follows
//! the tables wherever they go.

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

    pub fn place(&self, name: &str) -> Result<usize> {
        let place = self.0.iter().position(|column| column == name);
        place.ok_or_else(|| format!("the ledger's statement has no column `{name}`").into())
    }

    /// The columns of a table, for a SELECT.
    pub fn of(&self, table: &str) -> String {
        self.0.iter().map(|name| format!("{table}.{name}")).collect::<Vec<_>>().join(", ")
    }
}

/// Where the values are that differ from one progress event to the next.
pub struct Moving {
    pub event_seq: usize,
    pub event_at: usize,
    pub prev_hash: usize,
    pub hash: usize,
    pub row_seq: usize,
    pub updated_at: usize,
    pub head: usize,
}

impl Moving {
    pub fn of(event: &Columns, row: &Columns) -> Result<Moving> {
        Ok(Moving {
            event_seq: event.place("seq")?,
            event_at: event.place("at")?,
            prev_hash: event.place("prev_hash")?,
            hash: event.place("hash")?,
            row_seq: row.place("seq")?,
            updated_at: row.place("updated_at")?,
            head: row.place("head")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_from_the_statements() {
        let insert = Columns::listed("INSERT INTO t (a, b) VALUES (?1, ?2)", "INTO t (").unwrap();
        assert_eq!(insert.0, ["a", "b"]);
        assert_eq!(insert.of("t"), "t.a, t.b");
        let update = Columns::assigned("UPDATE t SET b = ?2, c = ?3 WHERE a = ?1").unwrap();
        assert_eq!(update.0, ["a", "b", "c"]);
        assert!(update.place("c").is_ok() && update.place("d").is_err());
        assert!(Columns::assigned("UPDATE t SET b = b + 1 WHERE a = ?1").is_err());
        assert!(Columns::listed("UPDATE t SET a = 1", "INTO t (").is_err());
    }
}
