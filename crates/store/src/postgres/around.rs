//! Reads narrow tables despite damage. If a page of the table or of an index cannot be read, the other pages are read
//! without an index, and the damage is reported.

use tokio_postgres::Row;

use super::{
    connection::{Param, params},
    read::Reader,
    row::get,
};
use crate::Error;

/// A query over a narrow table.
pub(super) struct Look {
    pub table: &'static str,
    /// Its purpose, for the report of damage.
    pub purpose: &'static str,
    pub indexed: &'static str,
    /// The same query over some pages of the table. Its two further parameters are the first page and the one after the
    /// last.
    pub paged: &'static str,
}

/// The rows of some pages, as `part`. Materialized, so that no index is used. A page has at most 291 rows. PostgreSQL
/// 13 has no ranges of row positions.
macro_rules! pages {
    ($table:literal, $from:literal, $to:literal) => {
        concat!(
            "WITH part AS MATERIALIZED (SELECT * FROM ",
            $table,
            " WHERE ctid = ANY (ARRAY(SELECT format('(%s,%s)', page, item)::tid FROM generate_series(",
            $from,
            "::bigint, ",
            $to,
            "::bigint - 1) page, generate_series(1, 291) item))) "
        )
    };
}
pub(super) use pages;

const PAGES: &str = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint";

/// Pages in one query, so that other users of the connection do not wait for the whole table.
const PIECE: usize = 256;

/// With more bad pages the rest of the table is not read: a person has to repair it.
const BAD_MOST: usize = 200;

impl Reader {
    /// Reads by the index. If the index or the table is damaged, reads every readable page; the rows are then neither
    /// sorted nor limited. A walk is healthy if its `first` part is.
    pub async fn look<'a>(
        &self,
        look: &Look,
        first: bool,
        params: impl Fn() -> Vec<Param<'a>>,
    ) -> Result<Vec<Row>, Error> {
        let damaged = &self.shared.damaged;
        let name = || format!("the table {}, read for {}", look.table, look.purpose);
        let why = match self.query(look.indexed, params()).await {
            Err(Error::Corrupt(why)) => why,
            Ok(rows) => {
                if first && !damaged.is_empty() {
                    damaged.remove(&name());
                }
                return Ok(rows);
            }
            failed => return failed,
        };
        let (rows, bad) = self.by_pages(look, params).await?;
        let why = match bad {
            0 => format!("an index of it cannot be read: {why}. Type in psql: REINDEX TABLE {}", look.table),
            bad => format!("{bad} of its pages cannot be read: {why}"),
        };
        damaged.add_damage(name(), &why, self.shared.time.last());
        Ok(rows)
    }

    /// The rows of all readable pages, and the number of unreadable ones.
    async fn by_pages<'a>(
        &self,
        look: &Look,
        params: impl Fn() -> Vec<Param<'a>>,
    ) -> Result<(Vec<Row>, usize), Error> {
        let pages = self.query(PAGES, params![look.table]).await?;
        let pages: i64 = pages.first().map_or(Ok(0), |row| get(row, 0))?;
        let (mut rows, mut bad) = (Vec::new(), 0);
        let begins = (0..pages).step_by(PIECE);
        let mut pieces: Vec<(i64, i64)> = begins.map(|from| (from, pages.min(from + PIECE as i64))).collect();
        while let Some((from, to)) = pieces.pop() {
            let mut params = params();
            params.extend(params![from, to]);
            match self.query(look.paged, params).await {
                Ok(read) => rows.extend(read),
                Err(Error::Corrupt(_)) if to - from > 1 => {
                    let middle = from + (to - from) / 2;
                    pieces.extend([(from, middle), (middle, to)]);
                }
                Err(error @ Error::Corrupt(_)) => {
                    bad += 1;
                    if bad > BAD_MOST {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok((rows, bad))
    }
}
